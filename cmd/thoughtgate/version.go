package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
)

// A build says which program this is.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), thisBuild())
		}
		return printVersion(cmd.OutOrStdout())
	}
	return cmd
}

func printVersion(w io.Writer) error {
	_, err := fmt.Fprintln(w, thisBuild())
	return err
}

func printJSON(w io.Writer, v any) error {
	if err := json.MarshalWrite(w, v, jsontext.Multiline(true)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

func thisBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns the build on one line.
func (b build) String() string {
	line := "thoughtgate " + b.Version
	if b.Revision != "" {
		line += " " + b.Revision
	}
	if b.Modified {
		line += " (modified)"
	}
	return line + " " + b.Go + " " + b.Platform
}
