package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/toolpin"
)

// lockFile is the name of the lock file if the configuration names none.
const lockFile = "thoughtgate.lock"

func newPin() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pin",
		Short: "Write the tools of the servers to a lock file",
		Long: "Ask the servers of a configuration for their tools, show what has changed since the lock file was written, and\n" +
			"write it again. A gate with pins.file holds or denies calls of tools that are not as the file has them.\n" +
			"With --check nothing is written, and the exit status is 1 if anything has changed.",
		Example: "  thoughtgate pin -c thoughtgate.yaml\n  thoughtgate pin -c thoughtgate.yaml --check",
		Args:    noArguments,
	}
	o := pinOptions{config: configFlag(cmd)}
	cmd.Flags().StringVar(&o.upstream, "upstream", "", "`name` of the only upstream to ask; the others stay as they are in the file")
	cmd.Flags().StringVarP(&o.file, "output", "o", "", "the lock `file` (default: pins.file, or "+lockFile+" next to the configuration)")
	cmd.Flags().BoolVar(&o.check, "check", false, "only compare")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, warnings, err := load(cmd.ErrOrStderr(), config.Sources{File: *o.config, WithoutPins: true})
		if err != nil {
			return err
		}
		names, err := o.upstreams(cfg)
		if err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		warn(cmd.ErrOrStderr(), warnings)
		cfg.Telemetry.Log.Level = slog.LevelError
		log, _ := newLog(cmd.ErrOrStderr(), cfg, nil)
		lister, err := app.NewToolLister(cfg, names, log)
		if err != nil {
			return err
		}
		found, err := lister.List(cmd.Context())
		if err := errors.Join(err, lister.Close()); err != nil {
			return err
		}
		if err := o.compare(cmd.OutOrStdout(), found, o.lockFile(cfg)); err != nil || cfg.Pins.File != "" {
			return err
		}
		_, err = fmt.Fprintln(cmd.ErrOrStderr(), "The gate uses the lock file if the configuration has pins.file.")
		return err
	}
	return cmd
}

type pinOptions struct {
	config   *string
	upstream string
	file     string
	check    bool
}

// upstreams returns the names of the upstreams to ask.
func (o *pinOptions) upstreams(cfg config.Config) ([]string, error) {
	if o.upstream != "" {
		name, err := pickUpstream(cfg.Upstreams, o.upstream)
		return []string{name}, err
	}
	var names []string
	for _, u := range cfg.Upstreams {
		names = append(names, u.Name)
	}
	return names, nil
}

// lockFile returns the name of the lock file.
func (o *pinOptions) lockFile(cfg config.Config) string {
	if name := cmp.Or(o.file, cfg.Pins.File); name != "" {
		return name
	}
	return filepath.Join(filepath.Dir(cmp.Or(*o.config, os.Getenv("THOUGHTGATE_CONFIG"))), lockFile)
}

// compare prints the differences between the lock file and the tools that were found, and writes
// the file unless it is only to be checked.
func (o *pinOptions) compare(w io.Writer, found toolpin.File, name string) error {
	pinned, err := readLockFile(name)
	if errors.Is(err, fs.ErrNotExist) && !o.check {
		pinned, err = toolpin.File{}, nil
	}
	if err != nil {
		return err
	}
	if o.upstream != "" {
		for upstream, tools := range pinned {
			if found[upstream] == nil {
				found[upstream] = tools
			}
		}
	}
	differences := pinned.Differences(found)
	if err := printDifferences(w, pinned, differences); err != nil {
		return err
	}
	if !o.check {
		return writeLockFile(w, found, name, len(differences))
	}
	if len(differences) > 0 {
		return fmt.Errorf("%s: tools that are not as the file has them: %d", name, len(differences))
	}
	_, err = fmt.Fprintln(w, "ok")
	return err
}

// writeLockFile writes the lock file, and prints how many tools it has.
func writeLockFile(w io.Writer, file toolpin.File, name string, changes int) error {
	text, err := file.Text()
	if err == nil {
		err = replaceFile(name, text)
	}
	if err != nil {
		return err
	}
	tools := 0
	for _, list := range file {
		tools += len(list)
	}
	_, err = fmt.Fprintf(w, "%s: written; tools: %d, changes: %d\n", name, tools, changes)
	return err
}

func readLockFile(name string) (toolpin.File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, toolpin.MaxFile+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	file, err := toolpin.Read(text)
	if err != nil {
		return nil, fmt.Errorf("%s %w", name, err)
	}
	return file, nil
}

// maxToolLines is how many lines are printed about a tool.
const maxToolLines = 200

// printDifferences prints differences from the pinned tools. It prints no definitions of an
// upstream of which nothing was pinned.
func printDifferences(w io.Writer, pinned toolpin.File, all []toolpin.Difference) error {
	var text strings.Builder
	for _, d := range all {
		text.WriteString(d.Title() + "\n")
		if pinned[d.Upstream] == nil {
			continue
		}
		for _, line := range d.Lines(maxToolLines) {
			text.WriteString("  " + line + "\n")
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// replaceFile replaces a file at once, so that a gate never reads a part of it.
func replaceFile(name string, text []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	_, err = temporary.Write(text)
	err = errors.Join(err, temporary.Chmod(0o644), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), name)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
	}
	return err
}
