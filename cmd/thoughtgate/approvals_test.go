package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The commands in the documentation are understood as they are written.
func TestDocumentedApprovals(t *testing.T) {
	text, err := os.ReadFile("../../docs/approvals.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^thoughtgate (approvals .*)$`).FindAllStringSubmatch(string(text), -1)
	documented := map[string]bool{}
	word := regexp.MustCompile(`'[^']*'|\S+`)
	for _, line := range lines {
		cmd, args, err := newRoot().Find(word.FindAllString(line[1], -1))
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %v", line[0], err)
		}
		documented[cmd.Name()] = true
	}
	for _, cmd := range newApprovals().Commands() {
		if !documented[cmd.Name()] {
			t.Errorf("%s is not documented", cmd.CommandPath())
		}
		if cmd.Flag("token") != nil {
			t.Errorf("%s takes a token where others read it", cmd.CommandPath())
		}
	}
	for _, name := range []string{urlVariable, tokenVariable, defaultURL} {
		if !strings.Contains(string(text), name) {
			t.Errorf("%s is not documented", name)
		}
	}
}
