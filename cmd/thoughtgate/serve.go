package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

func newServe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the gate",
		Long:  "Run the gate. SIGTERM or Ctrl-C stops it. Flags override environment variables, which override the file.\n\n" + describeVariables(),
		Args:  noArguments,
	}
	file := configFlag(cmd)
	cmd.Flags().String("listen", "", "`address` for agents, as host:port")
	cmd.Flags().String("operators-listen", "", "`address` for operators (inbox, health, metrics), as host:port")
	cmd.Flags().StringArray("upstream", nil, "`URL` of the MCP server; repeat as name=URL for several")
	cmd.Flags().String("store", "", "where held calls are kept: sqlite:FILE, desk:, memory:, or a postgres:// or redis:// `URL` (put passwords into THOUGHTGATE_STORE instead)")
	cmd.Flags().Bool("anonymous", false, "accept agents without authentication, even on addresses that other machines can reach")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		sources := config.Sources{File: *file, Overrides: overrides(cmd.Flags())}
		level := new(slog.LevelVar)
		a, err := newApp(cmd.ErrOrStderr(), level, sources)
		if err != nil {
			return err
		}
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
		if err := a.ReloadFrom(app.Source{Signal: hangups, Level: level, Load: func() (config.Config, error) {
			cfg, _, err := load(io.Discard, sources)
			return cfg, err
		}}); err != nil {
			return errors.Join(err, a.Close())
		}
		if err := showToken(cmd.ErrOrStderr(), a); err != nil {
			return errors.Join(err, a.Close())
		}
		collectLess()
		return a.Run(cmd.Context())
	}
	return cmd
}

// collectLess lets the heap grow further before garbage is collected. That of a
// gate is a few megabytes, so by default the collector runs often, for little.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
	}
}

// showToken prints the token that was made for whoever starts the gate, if that
// is a person at a terminal. Otherwise the output is collected, and others read
// it: then the token goes to a private file.
func showToken(w io.Writer, a *app.App) error {
	if !isTerminal(w) {
		return a.KeepToken()
	}
	if token := a.MadeToken(); token != "" {
		_, _ = fmt.Fprintf(w, "operator token (shown once; set operators.token for a permanent one): %s\n", token)
		_, _ = fmt.Fprintf(w, "open in a browser to sign in: %s\n", a.LoginLink())
	}
	return nil
}

// isTerminal reports whether what is written to w is shown to a person.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	about, err := file.Stat()
	if err != nil || about.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // a character device as well
	return err != nil || !os.SameFile(about, null)
}

func configFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("config", "c", "", "configuration `file` (default: the one in THOUGHTGATE_CONFIG)")
}

func describeVariables() string {
	var b strings.Builder
	b.WriteString("Environment variables and the settings that they override:\n")
	for _, v := range config.Variables() {
		setting := strings.Join(v.Settings, ", ")
		if setting == "" {
			setting = "path of the configuration file"
		}
		b.WriteString("  " + v.Name + strings.Repeat(" ", max(1, 44-len(v.Name))) + setting + "\n")
	}
	return b.String()
}

// overrides returns the settings that were given as flags.
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

// newApp returns the gate that s describes, bound to its addresses.
func newApp(stderr io.Writer, level *slog.LevelVar, s config.Sources) (*app.App, error) {
	cfg, warnings, err := load(stderr, s)
	if err != nil {
		return nil, err
	}
	level.Set(cfg.Telemetry.Log.Level)
	log := logging.New(stderr, cfg.Telemetry.Log.Format, level)
	for _, w := range warnings {
		log.Warn("configuration", "warning", w.String())
	}
	return app.New(cfg, log)
}
