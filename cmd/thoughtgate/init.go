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
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// starterConfig is the starter configuration. Its policy is wrap.cedar.
//
//go:embed starter.yaml
var starterConfig string

// starterPolicyFile is the policy's file name in starterConfig.
const starterPolicyFile = "thoughtgate.cedar"

// initFlags are the flags of init.
type initFlags struct {
	client, file, config, command string
	servers                       []string
	project, write, dryRun, undo  bool
	merged                        bool
}

func newInit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a starter configuration, or put the gate in front of a client's servers",
		Long: "Without --for, write a commented configuration (thoughtgate.yaml, or FILE) and its policy.\n\n" +
			"With --for, show the change to an MCP client's configuration that makes it start its servers through\n" +
			"\"thoughtgate wrap\", also those with a URL. --write makes the change, and --undo restores the file. With --merge, the\n" +
			"servers move to a configuration, thoughtgate.yaml or --config, and the client gets one server that has all of them; a\n" +
			"later --merge adds the client's new servers. Clients: " + clientconfig.Names() + ".",
		Args: optionalArgument,
	}
	var f initFlags
	cmd.Flags().StringVar(&f.client, "for", "", "`client` whose configuration is changed")
	completeFlag(cmd, "for", words(strings.Split(clientconfig.Names(), ", ")...))
	cmd.Flags().BoolVar(&f.project, "project", false, "change the client's configuration in the current directory, not the user's")
	cmd.Flags().StringVar(&f.file, "file", "", "change this `file` of the client")
	cmd.Flags().StringArrayVar(&f.servers, "server", nil, "`name` of a server to change; repeat for several (default: all)")
	cmd.Flags().StringVar(&f.config, "config", "", "configuration `file` that wrap is given; with --merge, the new one")
	cmd.Flags().StringVar(&f.command, "command", "", "`program` that the client starts (default: thoughtgate, or its path if that is not found)")
	cmd.Flags().BoolVar(&f.merged, "merge", false, "put one server, with all servers of the client behind it, in place of them")
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
			return writeStarter(cmd.OutOrStdout(), append(args, starterFile)[0])
		}
	}
	return cmd
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

// changes reports whether flags are set that need --for.
func (f initFlags) changes() bool {
	return f.write || f.merged || f.project || len(f.servers) > 0 || f.config != "" || f.command != ""
}

func (f initFlags) checkFor(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q", args[0])
	case f.write && f.dryRun:
		return errors.New("--write and --dry-run exclude each other")
	case f.project && f.file != "":
		return errors.New("--project and --file exclude each other")
	case f.command != "" && !clientconfig.LooksLikeGate(f.command) && !isGate(f.command):
		return errors.New("--command must be this program, or one whose name begins with thoughtgate")
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

// create writes a file that must not exist yet.
func create(file, text string) error {
	err := newFile(file, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s already exists", file)
	}
	return err
}

// wrap shows or makes the change to a client's configuration.
func (f initFlags) wrap(cmd *cobra.Command) error {
	c, err := clientconfig.Find(f.client)
	if err != nil {
		return &usageError{cmd.CommandPath(), oneOf("for", f.client, strings.Split(clientconfig.Names(), ", ")...)}
	}
	if f.merged {
		return f.merge(cmd, c)
	}
	how, err := f.wrapping()
	if err != nil {
		return err
	}
	file, err := f.locate(c)
	if err != nil {
		f.reportOthers(cmd.ErrOrStderr(), c, "", how)
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
	f.reportOthers(cmd.ErrOrStderr(), c, file, how)
	if len(change.Patches) == 0 {
		return nil
	}
	if err := showDiff(cmd.OutOrStdout(), file, content, change.Text); err != nil || f.dryRun {
		return err
	}
	_, err = fmt.Fprintln(cmd.ErrOrStderr(), nothingWritten)
	return err
}

const nothingWritten = "Nothing was written. Run the command again with --write to make this change."

// apply makes the change.
func (f initFlags) apply(cmd *cobra.Command, c clientconfig.Client, file string, how clientconfig.WrapOptions) error {
	files, err := changedFiles()
	if err != nil {
		return err
	}
	change, err := files.Wrap(c, file, how)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	report(cmd.ErrOrStderr(), file, change, "is wrapped now")
	f.reportOthers(cmd.ErrOrStderr(), c, file, how)
	if len(change.Patches) == 0 {
		return nil
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "Restart %s. To restore the file: thoughtgate init --undo --for %s\n", c.Name, c.Name)
	return err
}

// locate returns the client's file to change.
func (f initFlags) locate(c clientconfig.Client) (string, error) {
	if f.file != "" {
		return f.file, nil
	}
	system, err := thisSystem()
	if err != nil {
		return "", err
	}
	if f.project {
		return c.ProjectFile(system)
	}
	return c.UserFile(system)
}

// thisSystem returns the directories with the clients' files.
func thisSystem() (clientconfig.System, error) {
	home, err := os.UserHomeDir()
	return clientconfig.System{OS: runtime.GOOS, Home: home, Project: ".", Getenv: os.Getenv}, err
}

// reportOthers prints the client's other files that start servers without the gate.
func (f initFlags) reportOthers(w io.Writer, c clientconfig.Client, file string, how clientconfig.WrapOptions) {
	system, err := thisSystem()
	if err != nil {
		return
	}
	how.Servers = nil
	content, _ := os.ReadFile(file)
	for _, other := range c.Files(system, content) {
		if sameFile(other, file) {
			continue
		}
		content, err := os.ReadFile(other)
		if err != nil {
			continue
		}
		change, err := c.Wrap(content, how)
		if err == nil && len(change.Patches) == 0 {
			continue
		}
		_, _ = fmt.Fprintf(w, "%s starts servers that are not gated. To see them: thoughtgate init --for %s --file %[1]s\n", oneLine(other, maxCell), c.Name)
	}
}

// wrapping returns the options for wrapping servers: which ones, and the program and configuration
// to put in front of them. Without --command, the program is the name thoughtgate if the PATH has
// this program under that name, and otherwise the path of this program.
func (f initFlags) wrapping() (clientconfig.WrapOptions, error) {
	w := clientconfig.WrapOptions{Command: f.command, Servers: f.servers}
	if f.config != "" { // made absolute: the client may start "thoughtgate wrap" in any directory
		path, err := filepath.Abs(f.config)
		if err != nil {
			return w, err
		}
		if _, err := os.Stat(path); err != nil {
			return w, err
		}
		w.Config = path
	}
	if filepath.IsAbs(w.Command) {
		w.Path = w.Command
	}
	self, err := os.Executable()
	if err != nil {
		return w, err
	}
	w.IsGate = isGate
	if w.Command != "" {
		return w, nil
	}
	w.Command, w.Path = self, self
	if found, err := exec.LookPath("thoughtgate"); err == nil && sameFile(found, self) {
		w.Command = "thoughtgate"
	}
	return w, nil
}

// isGate reports whether a program in a client's file is this program or the installed
// gate. It compares files, because any program can have the gate's name, and a relative path
// depends on the directory.
func isGate(program string) bool {
	self, err := os.Executable()
	if err != nil {
		return false
	}
	if !strings.ContainsAny(program, `/\`) {
		if program, err = exec.LookPath(program); err != nil {
			return false
		}
	}
	installed, _ := exec.LookPath("thoughtgate")
	return filepath.IsAbs(program) && (sameFile(program, self) || sameFile(program, installed))
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// changedFiles returns the records of earlier changes.
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

// maxWarning limits the length of a warning, which may contain foreign text.
const maxWarning = 300

// report prints the status of each server.
func report(w io.Writer, file string, change clientconfig.Change, wrapped string) {
	texts := map[clientconfig.Status]string{
		clientconfig.Wrapped:             wrapped,
		clientconfig.Unchanged:           "is already wrapped",
		clientconfig.Remote:              "has a URL and is not changed",
		clientconfig.ConfiguredElsewhere: "is not started by this file and is not changed",
		clientconfig.NotChosen:           "is not selected",
		clientconfig.Merging:             wrapped,
		clientconfig.NotMerged:           "is not merged",
	}
	_, _ = fmt.Fprintf(w, "%s:\n", file)
	if len(change.Servers) == 0 {
		_, _ = fmt.Fprintln(w, "  no servers in this file")
	}
	for _, s := range change.Servers {
		location := ""
		if s.Place != "" {
			location = " (" + oneLine(s.Place, maxCell) + ")"
		}
		_, _ = fmt.Fprintf(w, "  %s%s %s\n", oneLine(s.Name, maxCell), location, texts[s.Status])
		if s.Warning != "" {
			_, _ = fmt.Fprintf(w, "    warning: %s\n", oneLine(s.Warning, maxWarning))
		}
	}
}

// showDiff prints the difference between two versions of a file, with control characters
// escaped.
func showDiff(w io.Writer, file string, before, after []byte) error {
	shown := strings.ReplaceAll(string(diff.Diff(file, before, file, after)), "\r\n", "\n")
	parts := strings.Split(shown, "\t")
	for i := range parts {
		parts[i] = safetext.Escape(parts[i])
	}
	_, err := io.WriteString(w, strings.Join(parts, "\t"))
	return err
}

// restore undoes earlier changes of --write.
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
	found := false
	for _, r := range records {
		if f.client != "" && f.client != r.Client || f.file != "" && !sameFile(f.file, r.File) {
			continue
		}
		found = true
		if err := f.restoreOne(cmd, files, r); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w (a copy from before the change is %s)", r.File, err, r.Backup))
		}
	}
	if !found {
		return errors.New("nothing to undo")
	}
	return errors.Join(problems...)
}

// restoreOne restores one file, or shows the difference with --dry-run.
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
	w := cmd.ErrOrStderr()
	u, err := files.Undo(r)
	if errors.Is(err, clientconfig.ErrNothingToUndo) {
		_, err = fmt.Fprintf(w, "%s: another process has restored it.\n", r.File)
		return err
	}
	if err != nil {
		return err
	}
	switch {
	case u.Identical:
		_, err = fmt.Fprintf(w, "%s: restored, byte for byte.\n", r.File)
	case bytes.Equal(u.Before, u.Text):
		_, err = fmt.Fprintf(w, "%s: it contains no wrapped server. A copy from before the change is %s\n", r.File, r.Backup)
	default:
		_, err = fmt.Fprintf(w, "%s: restored; later changes by others are kept. A copy from before the change is %s\n", r.File, r.Backup)
	}
	for _, name := range u.KeptFiles {
		_, _ = fmt.Fprintf(w, "  %s has changed since then, and stays\n", oneLine(name, maxCell))
	}
	for _, name := range u.Kept {
		_, _ = fmt.Fprintf(w, "  %s has changed since then: only the wrapping was removed\n", oneLine(name, maxCell))
	}
	return err
}
