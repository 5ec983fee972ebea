package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Every change of the table can be made: its text is in its file exactly once. The
// changes themselves are tried by make mutate.
func TestTableApplies(t *testing.T) {
	names := map[string]bool{}
	for _, m := range all() {
		text, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if n := bytes.Count(text, []byte(m.old)); n != 1 {
			t.Errorf("%s: %q is %d times in %s; want once", m.name, m.old, n, m.file)
		}
		if m.old == m.new || names[m.name] {
			t.Errorf("%s changes nothing, or its name is used twice", m.name)
		}
		names[m.name] = true
	}
}

// A test of another module is run in the directory of that module.
func TestModule(t *testing.T) {
	t.Chdir("../..")
	for pkg, want := range map[string][2]string{
		"gosdktask":                  {"gosdktask", "."},
		"gosdktask/examples/restart": {"gosdktask/examples", "restart"},
		"task/sqlitestore":           {".", "task/sqlitestore"},
	} {
		if dir, below := (mutation{pkg: pkg}).module(); dir != want[0] || below != want[1] {
			t.Errorf("%s is %s in %s", pkg, below, dir)
		}
	}
}
