package clientconfig

import (
	"os"
	"strings"
	"testing"
)

// Undo keeps a change that somebody made between a wrap and a merge.
func TestUndoMergeAfterWrapKeepsOtherChanges(t *testing.T) {
	m := newMergeTest(t, "cursor", []byte(twoServers))
	only := m.o.WrapOptions
	only.Config, only.Servers = "", []string{"a"}
	if _, err := m.files.Wrap(m.c, m.file, only); err != nil {
		t.Fatal(err)
	}
	m.write([]byte(strings.Replace(string(m.content()), `{"mcpServers"`, `{"mine": 1, "mcpServers"`, 1)))
	m.o.Servers = []string{"B c"}
	m.mustMerge()
	if _, err := m.undo(); err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(twoServers, `{"mcpServers"`, `{"mine": 1, "mcpServers"`, 1); string(m.content()) != want {
		t.Errorf("restored %s\nwant     %s", m.content(), want)
	}
}

// A merge that was killed before it changed the client's file takes nothing from an earlier one.
func TestKilledMergeKeepsEarlierOne(t *testing.T) {
	for _, first := range []string{"a", "B c"} { // the other one has variables, or none
		t.Run(first, func(t *testing.T) { killedMerge(t, first) })
	}
}

func killedMerge(t *testing.T, first string) {
	m := newMergeTest(t, "cursor", []byte(twoServers))
	m.o.Servers = []string{first}
	m.mustMerge()
	m.o.Servers = nil
	after := m.content()
	m.files.onStep = func(step string) {
		if step == "recorded" {
			panic("killed")
		}
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = m.merge()
	}()
	m.files.onStep = nil
	if string(m.content()) != string(after) {
		t.Fatalf("changed: %s", m.content())
	}
	if first == "a" { // once more, up to the end
		if names := m.mustMerge(); len(names) != 1 {
			t.Errorf("added %q", names)
		}
	}
	if _, err := m.undo(); err != nil {
		t.Fatal(err)
	}
	if string(m.content()) != twoServers {
		t.Errorf("restored %s", m.content())
	}
}

// A link to the configuration stays a link.
func TestMergeIntoLinkedConfiguration(t *testing.T) {
	m := newMergeTest(t, "cursor", []byte(twoServers))
	m.o.Servers = []string{"a"}
	m.mustMerge()
	if err := os.Rename(m.config, m.config+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(m.config+".moved", m.config); err != nil {
		t.Skip(err)
	}
	m.o.Servers = nil
	m.mustMerge()
	if text, err := os.ReadFile(m.config + ".moved"); err != nil || string(text) != "a\nb-c\n" {
		t.Errorf("the configuration is %q, %v", text, err)
	}
}
