package process

import (
	"strings"
	"testing"
)

// A program that was started only to start another one with its arguments is a launcher.
func TestLauncher(t *testing.T) {
	const passed = "wrap|--name|files|--|npx|-y|server files"
	for args, want := range map[string]bool{
		"sudo|-n|-u|gate|thoughtgate|" + passed:                        true,
		"sh|-c|thoughtgate wrap --name files -- npx -y 'server files'": true,
		"node|/usr/bin/thoughtgate|" + passed:                          true,
		"sh|host.sh":                                                   false,
		"claude":                                                       false,
		"claude|--mcp|wrap":                                            false,
		"-bash":                                                        false,
		"":                                                             false,
		"host|--name|files|--|npx|-y|server files": false,
	} {
		if got := isLauncher(strings.Split(args, "|"), strings.Split(passed, "|")); got != want {
			t.Errorf("%s: %t", args, got)
		}
	}
	if isLauncher([]string{"sh"}, nil) {
		t.Error("every program is a launcher of one without arguments")
	}
}
