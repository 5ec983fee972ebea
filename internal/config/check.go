package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// check sets the defaults that depend on other settings, and checks settings together.
func (l *loader) check() {
	l.findStateDir()
	l.findServerEnviron()
	if l.unread {
		return // missing settings may be in the file
	}
	if len(l.cfg.Upstreams) == 0 && !l.faulty("upstreams") {
		l.reject("upstreams", "no upstream configured: add `upstreams:`, set THOUGHTGATE_UPSTREAM, or start serve with `--upstream URL`")
	}
	names, paths := map[string]int{}, map[string]int{}
	for i := range l.cfg.Upstreams {
		at := fmt.Sprintf("upstreams[%d]", i)
		l.checkUpstream(at, &l.cfg.Upstreams[i])
		if l.checkUnique("upstreams", ".name", names, i, l.cfg.Upstreams[i].Name) {
			l.checkUnique("upstreams", ".path", paths, i, l.cfg.Upstreams[i].Paths...)
		}
	}
	l.checkEndpoints(paths)
	l.checkPolicy()
	l.checkPins()
	l.checkChannels()
	l.checkTasks()
	l.checkIdentity()
	l.checkListeners()
	l.checkDesk()
}

// checkListeners rejects addresses that are unsafe or that conflict.
func (l *loader) checkListeners() {
	if o := l.cfg.Operators; !loopback(o.Listen) && o.TLS.CertFile == "" && (o.URL == nil || o.URL.Scheme != "https") {
		const risk = "other machines can reach this address without TLS, so tokens and cookies can be read in transit; set operators.tls, or operators.url if a proxy adds https"
		l.warn("operators.listen", risk)
	}
	if l.isWrap {
		return // has no listener for agents
	}
	l.checkListener("listen", l.cfg.Listen)
	if isSocket(l.cfg.Listen) {
		l.checkSocket()
		return
	}
	if l.cfg.Store.Reveal() != DeskStore && collide(l.cfg.Listen, l.cfg.Operators.Listen) {
		l.reject("operators.listen", "must differ from listen: both include the same address and port")
	}
}

// checkSocket rejects what has no meaning at a Unix socket, whose clients are users of this machine.
func (l *loader) checkSocket() {
	if runtime.GOOS != "linux" {
		l.reject("listen", "can be a Unix socket only on Linux, which tells the gate the user of a connection")
	}
	for _, setting := range []string{"listen_tls", "identity"} {
		if l.origins.give(setting) {
			l.reject(setting, "cannot be set if `listen` is a Unix socket: its agents are users of this machine")
		}
	}
}

// DeskStore is the value of store for the desk: the store and the inbox that all local
// gates of a user share.
const DeskStore = "desk:"

// checkDesk rejects settings that have no effect because the desk has one inbox for all
// its gates. A token in the environment is ignored: it may be for another gate.
func (l *loader) checkDesk() {
	if l.cfg.Store.Reveal() != DeskStore {
		const users = "operators.os_users"
		if len(l.cfg.Operators.OSUsers) > 0 && !isSocket(l.cfg.Listen) {
			l.reject(users, "needs `store: 'desk:'`, or a Unix socket in `listen`: all users of this machine can reach the address of any other inbox")
		}
		return
	}
	for _, name := range []string{"listen", "token", "url", "tls", "tokens", "oidc"} {
		setting := "operators." + name
		switch {
		case !l.given(setting):
		case l.origin(setting).Source == tokenVariable:
			l.warn(setting, "is ignored: the desk has its own token")
		default:
			l.reject(setting, "cannot be set with `store: 'desk:'`: the desk has its own inbox, address and token")
		}
	}
	l.cfg.Operators.Token = Secret{}
}

// tokenVariable is the environment variable with the token of a single operator.
const tokenVariable = "THOUGHTGATE_OPERATOR_TOKEN"

// findStateDir sets the state directory if it is not configured.
func (l *loader) findStateDir() {
	if l.cfg.StateDir == "" {
		l.cfg.StateDir = UserStateDir(func(name string) string { return l.env.vars[name] })
	}
}

// UserStateDir returns the gate's state directory of a user, or an empty text if the
// user's environment names no directory for it.
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

// checkUpstream checks the upstream at the path at, and sets its default name and paths.
func (l *loader) checkUpstream(at string, u *Upstream) {
	if !l.given(at+".url") && u.URL == nil && u.Command == nil {
		l.report(l.origin(at), at+".url", "is required, unless command gives a program to start as the server")
	}
	l.checkCommand(at, u)
	isOnly := len(l.cfg.Upstreams) == 1
	switch {
	case l.given(at + ".name"), u.Name != "": // keep it; an invalid name is reported already
	case isOnly:
		u.Name = "default"
	default:
		l.report(l.origin(at), at+".name", "is required when there are several upstreams")
	}
	switch {
	case u.Paths != nil: // keep them
	case isOnly && len(l.cfg.Endpoints) == 0:
		u.Paths = []string{"/mcp", "/mcp/v1"}
	case u.Name != "":
		u.Paths = []string{"/mcp/" + u.Name}
	}
	l.checkUpstreamURL(at, u)
	if u.OAuth.Grant != "" {
		l.checkOAuth(at, u)
	}
}

// checkOAuth rejects settings that contradict the gate's own tokens for an upstream.
func (l *loader) checkOAuth(at string, u *Upstream) {
	setting := at + ".auth.oauth"
	for _, name := range []string{"headers.Authorization", "forward_authorization", "forward_credential"} {
		if other := at + "." + name; l.origins.give(other) {
			l.reject(other, "cannot be set with auth.oauth: the gate sends a token of its own")
		}
	}
	u.ForwardAuthorization = false
	if u.URL != nil && u.URL.Scheme != "https" && !loopback(net.JoinHostPort(u.URL.Hostname(), "0")) {
		l.reject(setting, "needs an https URL: others could read the tokens")
	}
	//mutate:false TestClientNeedsIssuer a server makes the gate send its secret anywhere
	if u.OAuth.Issuer == "" && u.OAuth.isRegistered() {
		l.reject(setting, "needs issuer, because client_id is given: otherwise the server chooses who gets client_secret")
	}
	switch u.OAuth.Grant {
	case "client_credentials", "token_exchange":
		if u.OAuth.ClientID == "" || u.OAuth.ClientSecret.Reveal() == "" {
			l.reject(setting, "needs client_id and client_secret, since nobody signs in")
		}
	default:
		l.checkSignIn(setting, u)
	}
}

// isRegistered reports whether the client was registered in advance. The id of another one is the URL of its metadata.
func (o *OAuth) isRegistered() bool {
	return o.ClientSecret.Reveal() != "" || o.ClientID != "" && !strings.HasPrefix(o.ClientID, "https://")
}

// checkSignIn rejects settings with which people cannot sign in for an upstream.
func (l *loader) checkSignIn(setting string, u *Upstream) {
	switch byPerson := u.OAuth.Grant == "principal"; {
	case l.cfg.Store.Reveal() == DeskStore:
		l.reject(setting, "cannot be used with `store: 'desk:'`, whose inbox belongs to several gates")
	case byPerson && l.cfg.Storage.Keys.Reveal() == "":
		l.reject(setting+".grant", "needs storage.keys: otherwise whoever can read the store can use the tokens of all people")
	case byPerson && !l.cfg.Identity.Recognises():
		l.reject(setting+".grant", "needs identity: the gate must know whose agent it is")
	}
}

// Settings of one of the two kinds of upstreams: with url, and with command.
var (
	ofURL     = []string{"url", "headers", "forward_authorization", "forward_credential", "forward_query", "auth", "tls", "connect_timeout"}
	ofCommand = []string{"env", "dir", "shared", "max_processes"}
)

// checkCommand rejects settings that belong to the other kind of upstream.
func (l *loader) checkCommand(at string, u *Upstream) {
	foreign, why := ofCommand, "needs command: this upstream has a URL"
	if u.Command != nil {
		foreign, why = ofURL, "cannot be set with command"
		u.ForwardAuthorization = false // a program has no headers
		if u.Command[0] == "" {
			l.reject(at+".command", "must begin with a program")
		}
	}
	for _, name := range foreign {
		if setting := at + "." + name; l.origins.give(setting) {
			l.reject(setting, why)
		}
	}
}

// serverVariables are the environment variables that upstream programs inherit from the
// gate. All others may be secrets of the gate.
var serverVariables = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
	"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT",
	"TEMP", "TMP", "USERNAME", "USERPROFILE", // of Windows
}

// findServerEnviron sets ServerEnviron and OwnVariables.
func (l *loader) findServerEnviron() {
	for name, value := range l.env.vars {
		switch {
		//mutate:true internal/upstream/bridge.TestServerEnvironment a server gets the environment of the gate
		case slices.ContainsFunc(serverVariables, func(v string) bool { return v == name || runtime.GOOS == "windows" && strings.EqualFold(v, name) }):
			l.cfg.ServerEnviron = append(l.cfg.ServerEnviron, name+"="+value)
		case slices.ContainsFunc(l.env.used[name], func(setting string) bool { return !l.isUnused(setting) }):
			l.cfg.OwnVariables = append(l.cfg.OwnVariables, name)
		}
	}
	slices.Sort(l.cfg.ServerEnviron)
	slices.Sort(l.cfg.OwnVariables)
}

func (l *loader) checkUpstreamURL(at string, u *Upstream) {
	if u.URL != nil && u.URL.Scheme == "http" && u.TLS != (TLS{}) {
		l.reject(at+".tls", "needs an upstream with an https URL")
	}
	if hint := u.OldTransport(); hint != "" {
		l.warn(at+".url", hint)
	}
	if u.TLS.InsecureSkipVerify {
		const risk = "the upstream's certificate is not verified: anyone on the network path can read and change every call"
		l.warn(at+".tls.insecure_skip_verify", risk)
	}
}

// checkUnique reports whether the values of a key in item i of a list differ from those of
// earlier items.
func (l *loader) checkUnique(list, key string, seen map[string]int, i int, values ...string) bool {
	for _, v := range values {
		if first, twice := seen[v]; twice {
			l.reject(fmt.Sprintf("%s[%d]%s", list, i, key), fmt.Sprintf("is the same as that of %s[%d]", list, first))
			return false
		}
		if v != "" {
			seen[v] = i
		}
	}
	return true
}

// checkListener rejects unauthenticated access from other machines, unless it is explicit.
func (l *loader) checkListener(path, addr string) {
	if l.cfg.Identity.Anonymous || l.cfg.Identity.Recognises() || loopback(addr) {
		return
	}
	l.reject(path, "other machines can reach this address, and agents are not authenticated; "+
		"use a loopback address, configure identity, or accept it with identity.anonymous: true or --anonymous")
}

// checkAuthorities checks all files of certificates, and makes their names absolute, so
// that a bad one is reported now and not with the first call.
func (l *loader) checkAuthorities(dir string) {
	for i := range l.cfg.Upstreams {
		l.checkCertificates(dir, fmt.Sprintf("upstreams[%d].tls.ca_file", i), &l.cfg.Upstreams[i].TLS.CAFile)
		if d := &l.cfg.Upstreams[i].Dir; *d != "" && !filepath.IsAbs(*d) {
			*d = filepath.Join(dir, *d)
		}
	}
	l.checkCertificates(dir, "identity.mtls.ca_file", &l.cfg.Identity.MTLS.CAFile)
	for path, c := range map[string]*Certificate{"listen_tls": &l.cfg.ListenTLS, "operators.tls": &l.cfg.Operators.TLS} {
		cert := l.checkCertificates(dir, path+".cert_file", &c.CertFile)
		key := l.readBeside(dir, path+".key_file", &c.KeyFile)
		if cert != nil && key != nil {
			l.checkKey(path, cert, key)
		}
	}
}

// checkKey checks that a certificate belongs to its key, and warns if it has expired.
func (l *loader) checkKey(path string, cert, key []byte) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		why, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "tls: "), " after skipping") // the rest quotes the file
		l.reject(path+".key_file", "cannot be used with cert_file: "+why)
		return
	}
	if end := pair.Leaf.NotAfter; l.now.After(end) {
		l.warn(path+".cert_file", "the certificate expired at "+end.UTC().Format(time.RFC3339)+": clients will refuse it")
	}
}

// checkCertificates returns the content of a file of certificates, or nil if it is not
// configured or not valid.
func (l *loader) checkCertificates(dir, path string, file *string) []byte {
	pem := l.readBeside(dir, path, file)
	if pem != nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
		l.reject(path, "has no certificate in PEM form")
		return nil
	}
	return pem
}

// readBeside reads the file of the setting at path, and makes its name absolute. Relative
// names are below dir. It returns nil if there is no file, or it cannot be read.
func (l *loader) readBeside(dir, path string, file *string) []byte {
	if *file == "" {
		return nil
	}
	if !filepath.IsAbs(*file) {
		*file = filepath.Join(dir, *file)
	}
	text, err := l.files.read(*file)
	if err != nil {
		l.reject(path, "cannot be read")
		return nil
	}
	return text
}
