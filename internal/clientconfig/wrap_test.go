package clientconfig

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the expected files")

var gate = WrapOptions{Command: "thoughtgate"}

// fixtures calls f with the file of every client.
func fixtures(t *testing.T, f func(t *testing.T, c Client, file string, content []byte)) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		name, rest, _ := strings.Cut(filepath.Base(file), ".")
		if strings.Contains(rest, "want") {
			continue
		}
		c, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		seen[name] = true
		t.Run(filepath.Base(file), func(t *testing.T) { f(t, c, file, content) })
	}
	for _, c := range Clients() {
		if !seen[c.Name] {
			t.Errorf("no test file for %s", c.Name)
		}
	}
}

func TestWrapFixtures(t *testing.T) {
	fixtures(t, func(t *testing.T, c Client, file string, content []byte) {
		change, err := c.Wrap(content, gate)
		if err != nil {
			t.Fatal(err)
		}
		expected := file + ".want"
		if *update {
			if err := os.WriteFile(expected, change.Text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(expected)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(change.Text)); diff != "" {
			t.Errorf("want -, got +:\n%s", diff)
		}
		again, err := c.Wrap(change.Text, gate)
		if err != nil {
			t.Fatal(err)
		}
		if len(again.Patches) > 0 || !bytes.Equal(again.Text, change.Text) {
			t.Errorf("wrapped twice:\n%s", again.Text)
		}
	})
}
