// Package isolate lets the gate of a person and the servers behind it run as a user of their own,
// whose files the person's account cannot read. The clients of the person then reach the servers
// only through the gate's socket.
//
//	setup, err := isolate.Plan(options)
//	err = setup.Work.Print(os.Stdout) // what Do will do
//	err = setup.Work.Do(ctx)
//	work, err := isolate.Undo(options, os.Stdout)
package isolate

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/thoughtgate/thoughtgate-go/internal/clientconfig"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// A Person is the user whose agents are isolated from the gate.
type Person struct {
	Name     string
	UID, GID int
	Home     string
}

// Options say what to set up.
type Options struct {
	Person  Person
	Program string   // the path of the gate's program
	Policy  []byte   // in Cedar
	Inbox   string   // the address of the inbox, as host:port
	Clients []string // the clients whose files are changed; empty means all that have a file
	Grants  []string // files for the servers: PATH, or PATH:rw
	Root    string   // if it is not empty, files are written below it, nothing is started and nobody owns the files
}

// A Setup is the work that isolates a gate.
type Setup struct {
	Work  *Work
	Token string // signs the person in

	o        Options
	paths    paths
	programs []clientconfig.Program
	record   record
}

// A Work is a list of steps to do.
type Work struct {
	o        Options
	steps    []step
	warnings []string
}

// A step is a part of a plan.
type step struct {
	about  string // what it will do
	detail string // more lines; may be empty
	do     func(context.Context) error
}

// paths are the places of a setup on the machine, without Options.Root. They contain the name of the
// person, so that each person can have a gate.
type paths struct{ user, etc, config, policy, secrets, key, record, unit, state, socket string }

// pathsOf returns the places of a person's setup.
func pathsOf(person string) paths {
	user := "thoughtgate-" + person
	etc := "/etc/" + user
	return paths{
		user: user, etc: etc, config: etc + "/thoughtgate.yaml", policy: etc + "/wrap.cedar",
		secrets: etc + "/environment", key: etc + "/store.key", record: etc + "/undo.json",
		unit: "/etc/systemd/system/" + user + ".service", state: "/var/lib/" + user, socket: "/run/" + user + "/agents.sock",
	}
}

// plainName is a name that needs no escaping in a unit, and leaves space for the prefix in the
// 32 bytes of a user's name.
var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,19}$`)

// Plan finds out what has to be done. It changes nothing.
func Plan(o Options) (*Setup, error) {
	s := &Setup{Work: &Work{o: o}, o: o, paths: pathsOf(o.Person.Name), Token: identity.NewToken("tgo")}
	if err := errors.Join(o.prepare(), s.check()); err != nil {
		return nil, err
	}
	grants, err := parseGrants(o)
	if err != nil {
		return nil, err
	}
	s.record = record{Grants: grants}
	if err := o.asPerson(s.readClients); err != nil {
		return nil, err
	}
	if len(s.programs) == 0 {
		return nil, errors.New("no client of " + o.Person.Name + " starts a server that can be isolated")
	}
	s.warn()
	s.plan()
	return s, nil
}

// check refuses what would not be a boundary.
func (s *Setup) check() error {
	switch _, err := os.Stat(s.o.at(s.paths.record)); {
	case err == nil:
		return fmt.Errorf("%s is isolated already; undo that first, with --undo", s.o.Person.Name)
	case !plainName.MatchString(s.o.Person.Name):
		return fmt.Errorf("the name of user %q must be at most 20 lower-case letters, digits, - and _", s.o.Person.Name)
	case s.o.Person.UID == 0:
		return errors.New("root cannot be isolated: name the user who runs the agents with --user")
	case s.o.Root != "":
		return nil
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return errors.New("systemd does not run on this machine")
	}
	if err := onlyRootChanges(s.o.Program); err != nil {
		return fmt.Errorf("the gate's program must belong to root, so that no agent can replace it; copy it to /usr/local/bin and run that: %w", err)
	}
	return nil
}

// at returns the place of a file below the root of o.
func (o Options) at(path string) string { return filepath.Join(o.Root, path) }

// readClients reads the files of the person's clients.
func (s *Setup) readClients() error {
	system := clientconfig.System{OS: "linux", Home: s.o.at(s.o.Person.Home), Project: s.o.at(s.o.Person.Home), Getenv: func(string) string { return "" }}
	for _, name := range s.o.Clients {
		if _, err := clientconfig.Find(name); err != nil {
			return err
		}
	}
	for _, c := range clientconfig.Clients() {
		if len(s.o.Clients) > 0 && !slices.Contains(s.o.Clients, c.Name) {
			continue
		}
		own := c.UserFiles(system)
		if len(own) == 0 && len(s.o.Clients) > 0 {
			return fmt.Errorf("%s: no configuration of %s found", c.Name, s.o.Person.Name)
		}
		others := c.Files(system, nil)
		for _, name := range own {
			content, err := s.readClient(c, name)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			others = append(others, c.Files(system, content)...)
		}
		slices.Sort(others)
		for _, name := range slices.Compact(others) {
			if !slices.Contains(own, name) {
				s.Work.warnings = append(s.Work.warnings, name+" can start servers too. It is not changed: it may hold keys, and agents can read it")
			}
		}
	}
	return s.readCopies(filepath.Join(system.Home, ".local/state/thoughtgate/init"))
}

// readClient plans the change of one file.
func (s *Setup) readClient(c clientconfig.Client, name string) ([]byte, error) {
	name, err := clientconfig.Resolve(name)
	if err != nil {
		return nil, err
	}
	before, mode, err := clientconfig.ReadWritable(name)
	if err != nil {
		return nil, err
	}
	change, err := c.Isolate(before, clientconfig.IsolateOptions{Program: s.o.Program, Socket: s.paths.socket, Add: s.add})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, server := range change.Servers {
		if server.Status == clientconfig.Remote {
			server.Warning = "it has a URL and stays as it is"
		}
		if server.Warning != "" {
			s.Work.warnings = append(s.Work.warnings, fmt.Sprintf("%s: server %s: %s", name, server.Name, server.Warning))
		}
	}
	if len(change.Patches) > 0 {
		s.record.Files = append(s.record.Files, file{Client: c.Name, Name: name, Mode: mode, Before: before, After: change.Text, Patches: change.Patches})
		shown := string(diff.Diff(name, change.Masked, name, change.Text))
		s.Work.steps = append(s.Work.steps, step{"change " + name + ", so that " + c.Name + " has only this gate", shown, func(context.Context) error { return s.hide(name) }})
	}
	return before, nil
}

// add gives the gate a server, and returns its name. The same server of several clients is one.
func (s *Setup) add(p clientconfig.Program) string {
	base := p.Name
	for i := 2; ; i++ {
		at := slices.IndexFunc(s.programs, func(other clientconfig.Program) bool { return other.Name == p.Name })
		if at < 0 {
			s.programs = append(s.programs, p)
			return p.Name
		}
		if reflect.DeepEqual(s.programs[at], p) {
			return p.Name
		}
		p.Name = fmt.Sprintf("%s-%d", base, i)
	}
}

// readCopies plans to remove the copies of clients' files that init has made: they hold the keys of
// servers too.
func (s *Setup) readCopies(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.backup"))
	if err != nil {
		return err
	}
	for _, name := range names {
		before, mode, err := clientconfig.ReadWritable(name)
		if err != nil {
			return err
		}
		s.record.Files = append(s.record.Files, file{Name: name, Mode: mode, Before: before})
		s.Work.steps = append(s.Work.steps, step{"remove " + name + ", a copy by thoughtgate init with the keys of servers", "", func(context.Context) error { return s.hide(name) }})
	}
	return nil
}

// hide replaces or removes a file of the person, which the record has.
func (s *Setup) hide(name string) error {
	i := slices.IndexFunc(s.record.Files, func(f file) bool { return f.Name == name })
	f := s.record.Files[i]
	return s.o.asPerson(func() error {
		now, err := os.ReadFile(name)
		if err == nil && !bytes.Equal(now, f.Before) {
			err = errors.New(name + " has changed since it was read")
		}
		switch {
		case err != nil:
			return err
		case f.After == nil:
			return os.Remove(name)
		default:
			return clientconfig.Replace(name, f.After, f.Mode)
		}
	})
}

// searchPath is where the service looks for programs.
const searchPath = "/usr/local/bin:/usr/bin:/bin"

// warn adds warnings about what would weaken the boundary, or keep a server from running.
func (s *Setup) warn() {
	warnf := func(format string, args ...any) {
		s.Work.warnings = append(s.Work.warnings, fmt.Sprintf(format, args...))
	}
	for _, p := range s.programs {
		if s.o.Root != "" {
			break // another machine
		}
		if program, err := findProgram(p.Command[0]); err != nil {
			warnf("server %s: the service does not find %s in %s", p.Name, p.Command[0], searchPath)
		} else if err := onlyRootChanges(program); err != nil {
			warnf("server %s: agents may replace its program, which gets its keys: %v", p.Name, err)
		}
	}
	for _, p := range s.programs {
		for _, arg := range p.Command[1:] {
			within := func(dir string) bool { return arg == dir || strings.HasPrefix(arg, strings.TrimSuffix(dir, "/")+"/") }
			if within(s.o.Person.Home) && !slices.ContainsFunc(s.record.Grants, func(g Grant) bool { return within(g.Path) }) {
				warnf("server %s: it cannot reach %s; to let it, add --grant %[2]s or --grant %[2]s:rw", p.Name, arg)
			}
		}
	}
	if s.o.Root == "" {
		for _, way := range rootWays(s.o.Person) {
			warnf("%s %s: an agent can become root that way, and no boundary holds", s.o.Person.Name, way)
		}
	}
}

// findProgram returns the path of a program, without links, as the service finds it.
func findProgram(name string) (string, error) {
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = nil
		for dir := range strings.SplitSeq(searchPath, ":") {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, c := range candidates {
		if about, err := os.Stat(c); err == nil && about.Mode().IsRegular() && about.Mode()&0o111 != 0 {
			return filepath.EvalSymlinks(c)
		}
	}
	return "", exec.ErrNotFound
}

// plan orders the steps: the keys leave the clients' files only when the gate runs.
func (s *Setup) plan() {
	p, hidden := s.paths, s.Work.steps
	config, secrets := s.config()
	create := [][]string{{"useradd", "--system", "--user-group", "--home-dir", p.state, "--no-create-home", "--shell", "/usr/sbin/nologin", p.user}}
	gate := []step{
		{"write " + p.record + ", which only root can read, to undo the rest", "", func(context.Context) error { return s.saveRecord() }},
		{"create the user " + p.user, lines(create), func(ctx context.Context) error {
			return errors.Join(s.o.run(ctx, create), s.o.giveTo(s.o.at(p.etc), p.user))
		}},
		{"write " + p.policy + ", the policy of thoughtgate wrap", "", func(context.Context) error { return s.write(p.policy, s.o.Policy) }},
		{"write " + p.config, config, func(context.Context) error { return s.write(p.config, []byte(config)) }},
		{"write " + p.secrets + " and " + p.key + ", which only root can read: the values of the servers' variables, and the key of the store", "", func(context.Context) error { return s.writeSecrets(secrets) }},
		{"write " + p.unit, s.unit(), func(context.Context) error { return s.writeUnit() }},
	}
	for _, g := range s.record.Grants {
		commands := g.commands(s.o.Person.Name, p.user)
		gate = append(gate, step{"let " + p.user + " " + g.verb() + " " + g.Path, lines(commands), func(ctx context.Context) error { return s.o.runAsPerson(ctx, commands) }})
	}
	start := [][]string{{"systemctl", "daemon-reload"}, {"systemctl", "enable", "--now", p.user + ".service"}}
	gate = append(gate, step{"start the gate", lines(start), func(ctx context.Context) error {
		return errors.Join(s.o.run(ctx, start), s.o.awaitSocket(ctx, p.socket))
	}})
	s.Work.steps = slices.Concat(gate, hidden)
}

// lines returns commands as text.
func lines(commands [][]string) string {
	var b strings.Builder
	for _, c := range commands {
		b.WriteString(strings.Join(c, " ") + "\n")
	}
	return b.String()
}

// Print prints what Do will do. It does not print secrets.
func (w *Work) Print(out io.Writer) error {
	var b strings.Builder
	for _, one := range w.steps {
		fmt.Fprintf(&b, "- %s\n", one.about)
		for line := range strings.Lines(one.detail) {
			b.WriteString("    " + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	for _, text := range w.warnings {
		b.WriteString("warning: " + text + "\n")
	}
	_, err := io.WriteString(out, safetext.Escape(b.String()))
	return err
}

// Do does what Print has shown, until a step fails. [Undo] undoes a part of a setup too.
func (w *Work) Do(ctx context.Context) error {
	for _, one := range w.steps {
		if err := one.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", one.about, err)
		}
	}
	return nil
}

// InboxURL returns the URL at which the person signs in.
func (s *Setup) InboxURL() string { return inboxURL(s.o.Inbox) }

// write writes a file that the gate can read and cannot change.
func (s *Setup) write(path string, content []byte) error {
	return errors.Join(clientconfig.Replace(s.o.at(path), content, 0o640), s.o.giveTo(s.o.at(path), s.paths.user))
}

// writeSecrets writes the variables of the service. The key of a store that an earlier setup has left
// stays.
func (s *Setup) writeSecrets(secrets string) error {
	if err := clientconfig.Replace(s.o.at(s.paths.secrets), []byte(secrets), 0o600); err != nil {
		return err
	}
	if _, err := os.Stat(s.o.at(s.paths.key)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return clientconfig.Replace(s.o.at(s.paths.key), []byte("STORE_KEY=k1:"+base64.StdEncoding.EncodeToString(key)+"\n"), 0o600)
}

// writeUnit writes the unit of systemd.
func (s *Setup) writeUnit() error {
	file := s.o.at(s.paths.unit)
	return errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), clientconfig.Replace(file, []byte(s.unit()), 0o644))
}
