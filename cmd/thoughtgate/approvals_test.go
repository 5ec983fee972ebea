package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The documentation has every command for approvers, the variables and the default address.
// No command takes a token, because other users can read the command line.
func TestDocumentedApprovals(t *testing.T) {
	text, err := os.ReadFile("../../docs/approvals.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^thoughtgate (approvals .*)$`).FindAllStringSubmatch(string(text), -1)
	documented := map[string]bool{}
	for _, line := range lines {
		documented[strings.Fields(line[1])[1]] = true // TestDocumentedCommands checks the rest
	}
	for _, cmd := range newApprovals().Commands() {
		if !documented[cmd.Name()] {
			t.Errorf("%s is not documented", cmd.CommandPath())
		}
		if cmd.Flag("token") != nil {
			t.Errorf("%s takes a token on the command line, which other users can read", cmd.CommandPath())
		}
	}
	for _, name := range []string{urlVariable, tokenVariable, defaultURL} {
		if !strings.Contains(string(text), name) {
			t.Errorf("%s is not documented", name)
		}
	}
}
