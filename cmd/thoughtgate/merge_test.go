package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/clientconfig"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// Of two merges into one configuration at the same time, none loses servers of the other.
func TestMergesAtTheSameTime(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	c, err := clientconfig.Find("cursor")
	if err != nil {
		t.Fatal(err)
	}
	var all []merging
	names := []string{"a", "b"}
	for _, name := range names {
		if err := os.WriteFile(name+".json", []byte(`{"mcpServers": {"`+name+`": {"command": "x"}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := initFlags{}.newMerging(c, name+".json", clientconfig.WrapOptions{Command: "thoughtgate"})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	cmd := new(cobra.Command)
	cmd.SetErr(io.Discard)
	if err := (initFlags{}).applyMerge(cmd, c, "a.json", all[0]); err != nil {
		t.Fatal(err)
	}
	if err := (initFlags{}).applyMerge(cmd, c, "b.json", all[1]); err == nil || !strings.Contains(err.Error(), "has just changed") {
		t.Errorf("the second: %v", err)
	}
	text, err := os.ReadFile(starterFile)
	if err != nil || !strings.Contains(string(text), `name: "a",`) {
		t.Errorf("%v: the configuration has lost a server:\n%s", err, text)
	}
}

// Values of a client's file are the same in the configuration, whatever they contain.
func TestMergedValuesAreTheSame(t *testing.T) {
	for _, name := range []string{"a", "123", "true", "null", "no", "1e5", "0x1"} {
		for _, value := range []string{"a b", "a: b # c", `"'\`, "a\nb\t\x1b\x7f", "\u0085\u2028\u2029\ufeff\u202e", "*a &b !c", "{[,]}", "- x", "😀", "null", ""} {
			m := merging{config: filepath.Join(t.TempDir(), "c.yaml")}
			m.policy = filepath.Join(filepath.Dir(m.config), "c.cedar")
			files, err := m.files([]clientconfig.MergedServer{
				{Name: name, Command: []string{"x", value}, Env: []clientconfig.Pair{{Name: "E", Value: value}}},
				{Name: "other", Command: []string{"y"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			for file, text := range files {
				if err := os.WriteFile(file, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cfg, _, err := config.Load(config.Sources{File: m.config, Channels: app.ChannelKinds()})
			if err != nil {
				t.Errorf("%q, %q: %v", name, value, err)
				continue
			}
			if u := cfg.Upstreams[0]; u.Name != name || !slices.Equal(u.Command, []string{"x", value}) {
				t.Errorf("%q, %q: %q %q", name, value, u.Name, u.Command)
			}
		}
	}
}

// An error about a file of others has no control characters for the terminal.
func TestErrorsAreEscaped(t *testing.T) {
	var out strings.Builder
	printError(&out, errors.New("not JSON: \x1b[2J\u202e\nsecond"))
	if got := out.String(); strings.ContainsAny(got, "\x1b\u202e") || !strings.Contains(got, "; second\n") {
		t.Errorf("printed %q", got)
	}
}
