package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// check fills in the defaults that depend on other settings, and notes what is
// wrong with settings that are right one by one.
func (l *loader) check() {
	l.findStateDir()
	l.findServerEnviron()
	if l.unread {
		return // what is missing may well be in the file
	}
	if len(l.cfg.Upstreams) == 0 && !l.faulty("upstreams") {
		l.report(l.origin("upstreams"), "upstreams", "no upstream configured: add `upstreams:`, set THOUGHTGATE_UPSTREAM, or start serve with `--upstream URL`")
	}
	names, paths := map[string]int{}, map[string]int{}
	for i := range l.cfg.Upstreams {
		at := fmt.Sprintf("upstreams[%d]", i)
		l.checkUpstream(at, &l.cfg.Upstreams[i])
		if l.checkUnique(at+".name", names, i, l.cfg.Upstreams[i].Name) {
			l.checkUnique(at+".path", paths, i, l.cfg.Upstreams[i].Paths...)
		}
	}
	l.checkPolicy()
	l.checkChannels()
	l.checkTasks()
	l.checkHosts()
	l.checkIdentity()
	l.checkListeners()
	l.checkDesk()
}

// checkListeners refuses addresses at which strangers could do harm, or at which
// the gate cannot listen.
func (l *loader) checkListeners() {
	if o := l.cfg.Operators; !loopback(o.Listen) && o.TLS.CertFile == "" && (o.URL == nil || o.URL.Scheme != "https") {
		const risk = "other machines can reach this address without TLS, so tokens and cookies can be read in transit; set operators.tls, or operators.url if a proxy adds https"
		l.warnings = append(l.warnings, Problem{l.origin("operators.listen"), "operators.listen", risk})
	}
	if l.isWrap {
		return // nothing listens for agents
	}
	l.checkListener("listen", l.cfg.Listen)
	if l.cfg.Store.Reveal() != DeskStore && collide(l.cfg.Listen, l.cfg.Operators.Listen) {
		l.report(l.origin("operators.listen"), "operators.listen", "must differ from listen: both include the same address and port")
	}
}

func (l *loader) checkHosts() {
	for i, h := range l.cfg.Waiting.Hosts {
		l.need(fmt.Sprintf("waiting.hosts[%d]", i), "name", h.Name)
	}
}

// DeskStore is the store that all gates of a user share, together with an inbox.
const DeskStore = "desk:"

// checkDesk notes settings that would not take effect, because all gates that share
// a desk have the same inbox. A token in the environment may be there for another
// gate.
func (l *loader) checkDesk() {
	if l.cfg.Store.Reveal() != DeskStore {
		return
	}
	for _, name := range []string{"listen", "token", "url", "tls", "tokens", "oidc"} {
		setting := "operators." + name
		switch at := l.origin(setting); {
		case !l.given(setting):
		case at.Source == tokenVariable:
			l.warnings = append(l.warnings, Problem{at, setting, "is ignored: the desk has a token of its own"})
		default:
			l.report(at, setting, "cannot be set with `store: 'desk:'`: the desk has an inbox, an address and a token of its own")
		}
	}
	l.cfg.Operators.Token = Secret{}
}

// tokenVariable is the environment variable with the token of a single operator.
const tokenVariable = "THOUGHTGATE_OPERATOR_TOKEN"

// findStateDir sets the directory for state if the configuration does not.
func (l *loader) findStateDir() {
	if l.cfg.StateDir == "" {
		l.cfg.StateDir = UserStateDir(func(name string) string { return l.env.vars[name] })
	}
}

// UserStateDir returns the directory in which the gate keeps the state of the user
// whose environment variables getenv returns, or nothing if there is no such place.
func UserStateDir(getenv func(string) string) string {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "thoughtgate")
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "thoughtgate")
	}
	if dir := getenv("LOCALAPPDATA"); filepath.IsAbs(dir) { // of Windows
		return filepath.Join(dir, "thoughtgate")
	}
	return ""
}

func (l *loader) checkUpstream(at string, u *Upstream) {
	if _, given := l.origins[at+".url"]; !given && u.URL == nil && u.Command == nil {
		l.report(l.origin(at), at+".url", "is required, or command for a server that is a program")
	}
	l.checkCommand(at, u)
	alone := len(l.cfg.Upstreams) == 1
	_, named := l.origins[at+".name"]
	switch {
	case named, u.Name != "":
	case alone:
		u.Name = "default"
	default:
		l.report(l.origin(at), at+".name", "is required when there are several upstreams")
	}
	switch {
	case u.Paths != nil:
	case alone:
		u.Paths = []string{"/mcp", "/mcp/v1"}
	case u.Name != "":
		u.Paths = []string{"/mcp/" + u.Name}
	}
	l.checkUpstreamTLS(at, u)
}

// Settings of upstreams that the other kind of upstream does not have.
var (
	ofURL = []string{
		"url", "headers", "forward_authorization", "forward_credential", "forward_query", "tls", "connect_timeout", "max_idle_connections",
	}
	ofCommand = []string{"env", "dir", "shared", "max_processes", "max_processes_per_client"}
)

// processIdle is how long a process that nobody uses is kept, unless a file says
// otherwise.
const processIdle = 10 * time.Minute

// checkCommand notes settings of an upstream that do not fit together, because it is
// a program or because it is not.
func (l *loader) checkCommand(at string, u *Upstream) {
	foreign, why := ofCommand, "needs command: this upstream is not a program"
	if u.Command != nil {
		foreign, why = ofURL, "cannot be set with command: this upstream is a program"
		u.ForwardAuthorization = false // a program has no headers
		if u.Command[0] == "" {
			l.report(l.origin(at+".command"), at+".command", "must begin with a program")
		}
		if !l.origins.give(at + ".idle_timeout") {
			u.IdleTimeout = processIdle
		}
	}
	for _, name := range foreign {
		if setting := at + "." + name; l.origins.give(setting) {
			l.report(l.origin(setting), setting, why)
		}
	}
	if u.Shared && l.origins.give(at+".max_processes_per_client") {
		l.report(l.origin(at+".max_processes_per_client"), at+".max_processes_per_client", "cannot be set with shared: all clients share one process")
	}
}

// serverVariables are the environment variables that a server which is a program gets
// of the gate's. All others may be secrets of the gate.
var serverVariables = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
	"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT",
	"TEMP", "TMP", "USERNAME", "USERPROFILE", // of Windows
}

// findServerEnviron sets what servers that are programs get of the environment.
func (l *loader) findServerEnviron() {
	for name, value := range l.env.vars {
		if slices.ContainsFunc(serverVariables, func(v string) bool { return v == name || runtime.GOOS == "windows" && strings.EqualFold(v, name) }) {
			l.cfg.ServerEnviron = append(l.cfg.ServerEnviron, name+"="+value)
		}
	}
	slices.Sort(l.cfg.ServerEnviron)
}

func (l *loader) checkUpstreamTLS(at string, u *Upstream) {
	if u.URL != nil && u.URL.Scheme == "http" && u.TLS != (TLS{}) {
		l.report(l.origin(at+".tls"), at+".tls", "needs an upstream with an https URL")
	}
	if u.TLS.InsecureSkipVerify {
		const risk = "the upstream's certificate is not verified: anyone on the network path can read and change every call"
		l.warnings = append(l.warnings, Problem{l.origin(at + ".tls.insecure_skip_verify"), at + ".tls.insecure_skip_verify", risk})
	}
}

// checkUnique reports whether no earlier upstream has one of the values of
// upstream i.
func (l *loader) checkUnique(path string, seen map[string]int, i int, values ...string) bool {
	for _, v := range values {
		if first, twice := seen[v]; twice {
			l.report(l.origin(path), path, fmt.Sprintf("is the same as that of upstreams[%d]", first))
			return false
		}
		if v != "" {
			seen[v] = i
		}
	}
	return true
}

// checkListener refuses to serve strangers by accident.
func (l *loader) checkListener(path, addr string) {
	if l.cfg.Identity.Anonymous || l.cfg.Identity.Recognises() || loopback(addr) {
		return
	}
	l.report(l.origin(path), path, "other machines can reach this address, and agents are not authenticated; "+
		"use a loopback address, configure identity, or accept it with identity.anonymous: true or --anonymous")
}

// checkAuthorities reads every file of certificates, which is relative to dir, so
// that a bad one is found now and not with the first call.
func (l *loader) checkAuthorities(dir string) {
	for i := range l.cfg.Upstreams {
		l.checkCertificates(dir, fmt.Sprintf("upstreams[%d].tls.ca_file", i), &l.cfg.Upstreams[i].TLS.CAFile)
		if d := &l.cfg.Upstreams[i].Dir; *d != "" && !filepath.IsAbs(*d) {
			*d = filepath.Join(dir, *d)
		}
	}
	l.checkCertificates(dir, "identity.mtls.ca_file", &l.cfg.Identity.MTLS.CAFile)
	for i := range l.cfg.Channels {
		c := &l.cfg.Channels[i]
		l.checkCertificates(dir, "channels."+c.Name+".email.ca_file", &c.Email.CAFile)
	}
	for path, c := range map[string]*Certificate{"listen_tls": &l.cfg.ListenTLS, "operators.tls": &l.cfg.Operators.TLS} {
		cert := l.checkCertificates(dir, path+".cert_file", &c.CertFile)
		key := l.readBeside(dir, path+".key_file", &c.KeyFile)
		if cert != nil && key != nil {
			l.checkKey(path, cert, key)
		}
	}
}

// checkKey checks that a listener can show the certificate at path.cert_file with
// the private key at path.key_file, and warns if clients will not accept it any more.
func (l *loader) checkKey(path string, cert, key []byte) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		why, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "tls: "), " after skipping") // what follows is out of the file
		l.report(l.origin(path+".key_file"), path+".key_file", "cannot be used with cert_file: "+why)
		return
	}
	if end := pair.Leaf.NotAfter; l.now.After(end) {
		l.warnings = append(l.warnings, Problem{
			l.origin(path + ".cert_file"), path + ".cert_file", "the certificate expired at " + end.UTC().Format(time.RFC3339) + ": clients will refuse it",
		})
	}
}

// checkCertificates checks a file of certificates, if there is one, and returns its
// content if it is right.
func (l *loader) checkCertificates(dir, path string, file *string) []byte {
	pem := l.readBeside(dir, path, file)
	if pem != nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
		l.report(l.origin(path), path, "has no certificate in PEM form")
		return nil
	}
	return pem
}

// readBeside reads the file that the setting at path names. A name that is not absolute is
// relative to dir, and is completed. It returns nil if no file is named, or it cannot be read.
func (l *loader) readBeside(dir, path string, file *string) []byte {
	if *file == "" {
		return nil
	}
	if !filepath.IsAbs(*file) {
		*file = filepath.Join(dir, *file)
	}
	text, err := l.files.read(*file)
	if err != nil {
		l.report(l.origin(path), path, "cannot be read")
		return nil
	}
	return text
}
