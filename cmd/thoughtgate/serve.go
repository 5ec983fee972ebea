package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/internal/version"
)

func newServe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the gate",
		Long: "Run the gate. SIGTERM or Ctrl-C stops it. Flags override environment variables, which override the file. Without a\n" +
			"file and an upstream, it uses " + starterFile + " in the current directory, if there is one.\n\n" + describeVariables(),
		Args: noArguments,
	}
	file := starterFlag(cmd)
	cmd.Flags().String("listen", "", "`address` for agents, as host:port")
	cmd.Flags().String("operators-listen", "", "`address` for operators (inbox, health, metrics), as host:port")
	cmd.Flags().StringArray("upstream", nil, "`URL` of the MCP server; repeat as name=URL for several")
	cmd.Flags().String("store", "", "where held calls are kept: sqlite:FILE, desk:, memory:, or a postgres:// or redis:// `URL` (put passwords into THOUGHTGATE_STORE instead)")
	cmd.Flags().Bool("anonymous", false, "accept agents without authentication, even on addresses that other machines can reach")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		sources := config.Sources{File: *file, Overrides: overrides(cmd.Flags())}
		if !cmd.Flags().Changed("upstream") {
			sources.File = orStarter(*file)
		}
		cfg, warnings, err := load(cmd.ErrOrStderr(), sources)
		if err != nil {
			return err
		}
		log, level := newLog(cmd.ErrOrStderr(), cfg, warnings)
		if sources.File != *file && !isTerminal(cmd.ErrOrStderr()) {
			log.Info("configuration", "file", absolute(sources.File))
		}
		a, err := app.New(cfg, log)
		if err != nil {
			return err
		}
		err = reloadFrom(a, level, func(w io.Writer) (config.Config, []config.Problem, error) { return load(w, sources) })
		if err = errors.Join(err, introduce(cmd.ErrOrStderr(), a, sources.File)); err != nil {
			return errors.Join(err, a.Close())
		}
		collectLess()
		return a.Run(cmd.Context())
	}
	return cmd
}

// collectLess makes garbage collection less frequent. The heap of a gate has only a few
// megabytes, so the default of GOGC costs much CPU time and saves little memory.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
	}
}

// starterFile is the file that init writes. The commands with a starterFlag use it if they are given neither a
// file nor an upstream. Wrap never does: agents start it in directories that others have filled.
const starterFile = "thoughtgate.yaml"

// orStarter returns the file, or starterFile if there is no other configuration.
func orStarter(file string) string {
	if file != "" || os.Getenv("THOUGHTGATE_CONFIG") != "" || os.Getenv("THOUGHTGATE_UPSTREAM") != "" {
		return file
	}
	if _, err := os.Stat(starterFile); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return starterFile
}

// sayStarter is orStarter for commands that open the store of the file: they say which file it is.
func sayStarter(cmd *cobra.Command, file string) string {
	chosen := orStarter(file)
	if chosen != file {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "using", absolute(chosen))
	}
	return chosen
}

// absolute returns the absolute name of a file, if it can be known.
func absolute(file string) string {
	if name, err := filepath.Abs(file); err == nil {
		return name
	}
	return file
}

// introduce prints what a person needs to know on a terminal, with the generated token. Elsewhere
// it writes the token to a private file, because other people may read the output.
func introduce(w io.Writer, a *app.App, file string) error {
	if !isTerminal(w) {
		return a.SaveToken()
	}
	about := "thoughtgate " + version.This().Version
	if file = cmp.Or(file, os.Getenv("THOUGHTGATE_CONFIG")); file != "" {
		about += " with " + absolute(file)
	}
	_, _ = fmt.Fprintf(w, "\n%s\n%s\n", about, a.Introduction())
	return showPasskeyLink(w, a)
}

// showPasskeyLink prints the link for the first passkey on a terminal, if there is none yet.
func showPasskeyLink(w io.Writer, a *app.App) error {
	link, err := a.FirstPasskeyLink(context.Background())
	if err == nil && link != "" {
		_, err = fmt.Fprintf(w, "open to add the first passkey, within 15 minutes: %s\n", link)
	}
	return err
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(file.Fd())
}

// starterFlag adds the flag of a command that uses orStarter.
func starterFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("config", "c", "", "configuration `file` (default: the one in THOUGHTGATE_CONFIG, or "+starterFile+" in the current directory)")
}

func configFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("config", "c", "", "configuration `file` (default: the one in THOUGHTGATE_CONFIG)")
}

func describeVariables() string {
	var b strings.Builder
	b.WriteString("Environment variables and the settings that they override:\n")
	for _, v := range config.Variables() {
		fmt.Fprintf(&b, "  %-43s %s\n", v.Name, cmp.Or(v.Setting, "path of the configuration file"))
	}
	return b.String()
}

// overrides returns the settings of the given flags.
func overrides(flags *pflag.FlagSet) []config.Override {
	settings := map[string]string{
		"listen":           "listen",
		"operators-listen": "operators.listen",
		"upstream":         "upstreams",
		"anonymous":        "identity.anonymous",
		"store":            "store",
	}
	var given []config.Override
	flags.Visit(func(f *pflag.Flag) {
		setting, ok := settings[f.Name]
		if !ok {
			return
		}
		values := []string{f.Value.String()}
		if several, ok := f.Value.(pflag.SliceValue); ok {
			values = several.GetSlice()
		}
		given = append(given, config.Override{Source: "--" + f.Name, Setting: setting, Values: values})
	})
	return given
}

// newLog returns the configured logger and its level. It logs the warnings about cfg.
func newLog(w io.Writer, cfg config.Config, warnings []config.Problem) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(cfg.Telemetry.Log.Level)
	format := cfg.Telemetry.Log.Format
	if isTerminal(w) && !cfg.Given("telemetry.log.format") {
		format = logging.Terminal
	}
	log := logging.New(w, format, level)
	for _, p := range warnings {
		log.Warn("configuration", "warning", p.String())
	}
	return log, level
}

// reloadFrom makes a gate reload its configuration after changes and after SIGHUP.
func reloadFrom(a *app.App, level *slog.LevelVar, load func(stderr io.Writer) (config.Config, []config.Problem, error)) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return a.ReloadFrom(app.Source{Signal: hangups, Level: level, Load: func() (config.Config, error) {
		cfg, _, err := load(io.Discard)
		return cfg, err
	}})
}

// load returns the configuration of s and the environment. If loading fails, it prints the
// warnings, which often explain the error.
func load(stderr io.Writer, s config.Sources) (config.Config, []config.Problem, error) {
	cfg, warnings, err := config.Load(inEnvironment(s))
	if err != nil {
		warn(stderr, warnings)
		return cfg, nil, err
	}
	return cfg, warnings, nil
}

// inEnvironment adds the environment of the program to s.
func inEnvironment(s config.Sources) config.Sources {
	s.Environ, s.Now, s.Channels = os.Environ(), time.Now(), app.ChannelKinds()
	return s
}

// A loaded is a configuration with its policy.
type loaded struct {
	config   config.Config
	settings *catalog.Settings
}

// loadPolicy loads a configuration and compiles its policy. It prints all warnings.
func loadPolicy(stderr io.Writer, s config.Sources) (loaded, error) {
	l, warnings, err := readPolicy(s)
	warn(stderr, warnings)
	return l, err
}

// readPolicy is like loadPolicy, but returns the warnings.
func readPolicy(s config.Sources) (loaded, []config.Problem, error) {
	cfg, warnings, err := config.Load(inEnvironment(s))
	if err != nil {
		return loaded{}, warnings, err
	}
	settings, doubts, err := app.Settings(cfg)
	return loaded{cfg, settings}, slices.Concat(warnings, doubts), err
}

func warn(w io.Writer, warnings []config.Problem) {
	for _, p := range warnings {
		_, _ = fmt.Fprintln(w, "warning:", safetext.Escape(p.String()))
	}
}
