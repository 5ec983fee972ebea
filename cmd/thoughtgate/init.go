package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/clientconfig"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
)

// starterConfig is the starter configuration. Its policy is that of wrap.
//
//go:embed starter.yaml
var starterConfig string

// starterPolicyFile is what the starter configuration calls its policy.
const starterPolicyFile = "thoughtgate.cedar"

// initFlags are the flags of init.
type initFlags struct {
	client, file, config, command string
	servers                       []string
	project, write, dryRun, undo  bool
}

func newInit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a starter configuration, or put the gate in front of a client's servers",
		Long: "Without --for, write a commented configuration (thoughtgate.yaml, or FILE) and its policy.\n\n" +
			"With --for, show how the configuration of an MCP client changes so that it starts its servers through\n" +
			"\"thoughtgate wrap\". With --write, make that change; --undo restores the file. Clients: " + strings.Join(clientNames(), ", ") + ".",
		Args: positional(cobra.MaximumNArgs(1)),
	}
	var f initFlags
	cmd.Flags().StringVar(&f.client, "for", "", "`client` whose configuration is changed")
	cmd.Flags().BoolVar(&f.project, "project", false, "change the client's configuration in the current directory, not the user's")
	cmd.Flags().StringVar(&f.file, "file", "", "change this `file` of the client")
	cmd.Flags().StringArrayVar(&f.servers, "server", nil, "`name` of a server to change; repeat for several (default: all)")
	cmd.Flags().StringVar(&f.config, "config", "", "configuration `file` that wrap is given")
	cmd.Flags().StringVar(&f.command, "command", "", "`program` that the client starts (default: thoughtgate, or its path if that is not found)")
	cmd.Flags().BoolVar(&f.write, "write", false, "make the change, and keep a copy of the file")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only show the difference (the default with --for)")
	cmd.Flags().BoolVar(&f.undo, "undo", false, "restore the files that --write has changed, or only those of --for or --file")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(args); err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		switch {
		case f.undo:
			return f.restore(cmd)
		case f.client != "":
			return f.wrap(cmd)
		default:
			return writeStarter(cmd.OutOrStdout(), append(args, "thoughtgate.yaml")[0])
		}
	}
	return cmd
}

func clientNames() []string {
	var names []string
	for _, c := range clientconfig.Clients() {
		names = append(names, c.Name)
	}
	return names
}

// check refuses flags that contradict each other.
func (f initFlags) check(args []string) error {
	switch {
	case f.undo && (f.changes() || len(args) > 0):
		return errors.New("--undo takes only --for, --file and --dry-run")
	case f.undo:
		return nil
	case f.client == "" && (f.changes() || f.file != "" || f.dryRun):
		return errors.New("--for is required with these flags")
	case f.client != "":
		return f.checkFor(args)
	default:
		return nil
	}
}

// changes reports whether there are flags that only matter for a change.
func (f initFlags) changes() bool {
	return f.write || f.project || len(f.servers) > 0 || f.config != "" || f.command != ""
}

func (f initFlags) checkFor(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q", args[0])
	case f.write && f.dryRun:
		return errors.New("--write and --dry-run exclude each other")
	case f.project && f.file != "":
		return errors.New("--project and --file exclude each other")
	case f.command != "" && !clientconfig.IsGate(f.command):
		return errors.New("--command must be a program whose name begins with thoughtgate")
	default:
		return nil
	}
}

// writeStarter writes a first configuration and its policy.
func writeStarter(out io.Writer, file string) error {
	policy := strings.TrimSuffix(file, filepath.Ext(file)) + ".cedar"
	if strings.ContainsAny(filepath.Base(file), `*?[]\"`) || policy == file {
		return fmt.Errorf("%s: choose a name such as thoughtgate.yaml", file)
	}
	if err := create(policy, string(wrapPolicy)); err != nil {
		return err
	}
	text := strings.Replace(starterConfig, starterPolicyFile, fmt.Sprintf("%q", filepath.Base(policy)), 1)
	if err := create(file, text); err != nil {
		return errors.Join(err, os.Remove(policy))
	}
	_, err := fmt.Fprintf(out, "Wrote %s and %s: tools that only read are forwarded, all others ask you first.\n", file, policy)
	return err
}

// create writes a file that must not be there yet.
func create(file, text string) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is there already", file)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}

// wrap shows or makes the change to a client's configuration.
func (f initFlags) wrap(cmd *cobra.Command) error {
	c, err := clientconfig.Find(f.client)
	if err != nil {
		return &usageError{cmd.CommandPath(), err}
	}
	file, err := f.locate(c)
	if err != nil {
		return err
	}
	how, err := f.wrapping()
	if err != nil {
		return err
	}
	if f.write {
		return f.apply(cmd, c, file, how)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	change, err := c.Wrap(content, how)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	report(cmd.ErrOrStderr(), file, change, "will be wrapped")
	if len(change.Patches) == 0 {
		return nil
	}
	if err := showDiff(cmd.OutOrStdout(), file, content, change.Text); err != nil || f.dryRun {
		return err
	}
	_, err = fmt.Fprintln(cmd.ErrOrStderr(), "Nothing was written. Run the command again with --write to make this change.")
	return err
}

// apply makes the change.
func (f initFlags) apply(cmd *cobra.Command, c clientconfig.Client, file string, how clientconfig.Wrapping) error {
	files, err := changedFiles()
	if err != nil {
		return err
	}
	change, err := files.Wrap(c, file, how)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	report(cmd.ErrOrStderr(), file, change, "is wrapped now")
	if len(change.Patches) == 0 {
		return nil
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "Restart %s. To restore the file: thoughtgate init --undo --for %s\n", c.Name, c.Name)
	return err
}

// locate returns the file of a client that is to be changed.
func (f initFlags) locate(c clientconfig.Client) (string, error) {
	if f.file != "" {
		return f.file, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	system := clientconfig.System{OS: runtime.GOOS, Home: home, Project: ".", Getenv: os.Getenv}
	if f.project {
		return c.ProjectFile(system)
	}
	return c.UserFile(system)
}

// wrapping returns how servers are wrapped.
func (f initFlags) wrapping() (clientconfig.Wrapping, error) {
	w := clientconfig.Wrapping{Command: f.command, Servers: f.servers}
	if f.config != "" { // the client may start wrap anywhere
		path, err := filepath.Abs(f.config)
		if err != nil {
			return w, err
		}
		if _, err := os.Stat(path); err != nil {
			return w, err
		}
		w.Config = path
	}
	if w.Command != "" {
		return w, nil
	}
	self, err := os.Executable()
	if err != nil {
		return w, err
	}
	w.Command = self
	if found, err := exec.LookPath("thoughtgate"); err == nil && sameFile(found, self) {
		w.Command = "thoughtgate"
	}
	return w, nil
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// changedFiles returns what is known of files that were changed before.
func changedFiles() (clientconfig.Files, error) {
	dir := config.UserStateDir(os.Getenv)
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return clientconfig.Files{}, err
		}
		dir = filepath.Join(home, ".local", "state", "thoughtgate")
	}
	return clientconfig.Files{Dir: filepath.Join(dir, "init")}, nil
}

// report prints what becomes of each server.
func report(w io.Writer, file string, change clientconfig.Change, wrapped string) {
	texts := map[clientconfig.Status]string{
		clientconfig.Wrapped:   wrapped,
		clientconfig.Unchanged: "is already wrapped",
		clientconfig.Remote:    "is reached by URL, and is left alone; to gate it, put thoughtgate serve before it",
		clientconfig.Elsewhere: "is not started by this file, and is left alone",
		clientconfig.NotChosen: "is not chosen",
	}
	_, _ = fmt.Fprintf(w, "%s:\n", file)
	if len(change.Servers) == 0 {
		_, _ = fmt.Fprintln(w, "  there are no servers in this file")
	}
	for _, s := range change.Servers {
		place := ""
		if s.Place != "" {
			place = " (" + oneLine(s.Place, maxCell) + ")"
		}
		_, _ = fmt.Fprintf(w, "  %s%s %s\n", oneLine(s.Name, maxCell), place, texts[s.Status])
	}
}

// showDiff prints how a file changes. Characters that do something to a terminal
// are escaped.
func showDiff(w io.Writer, file string, before, after []byte) error {
	shown := strings.ReplaceAll(string(diff.Diff(file, before, file, after)), "\r\n", "\n")
	parts := strings.Split(shown, "\t")
	for i := range parts {
		parts[i] = plain.Escape(parts[i])
	}
	_, err := io.WriteString(w, strings.Join(parts, "\t"))
	return err
}

// restore undoes what --write has done.
func (f initFlags) restore(cmd *cobra.Command) error {
	files, err := changedFiles()
	if err != nil {
		return err
	}
	records, err := files.Records()
	if err != nil {
		return err
	}
	var problems []error
	done := 0
	for _, r := range records {
		if f.client != "" && f.client != r.Client || f.file != "" && !sameFile(f.file, r.File) {
			continue
		}
		done++
		if err := f.restoreOne(cmd, files, r); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w (a copy from before the change is %s)", r.File, err, r.Backup))
		}
	}
	if done == 0 {
		return errors.New("there is nothing to undo")
	}
	return errors.Join(problems...)
}

// restoreOne restores one file, or shows how it would change.
func (f initFlags) restoreOne(cmd *cobra.Command, files clientconfig.Files, r clientconfig.Record) error {
	if f.dryRun {
		content, err := os.ReadFile(r.File)
		if err != nil {
			return err
		}
		u, err := r.Plan(content)
		if err != nil {
			return err
		}
		return showDiff(cmd.OutOrStdout(), r.File, content, u.Text)
	}
	u, err := files.Undo(r)
	if err != nil {
		return err
	}
	w := cmd.ErrOrStderr()
	switch {
	case u.Identical:
		_, err = fmt.Fprintf(w, "%s: restored, byte for byte.\n", r.File)
	case bytes.Equal(u.Before, u.Text):
		_, err = fmt.Fprintf(w, "%s: nothing in it is wrapped any more. A copy from before the change is %s\n", r.File, r.Backup)
	default:
		_, err = fmt.Fprintf(w, "%s: restored; what others have changed since is kept. A copy from before the change is %s\n", r.File, r.Backup)
	}
	for _, name := range u.Kept {
		_, _ = fmt.Fprintf(w, "  %s was changed since: only the wrapping was removed\n", oneLine(name, maxCell))
	}
	return err
}
