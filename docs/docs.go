// Package docs holds the pages of the documentation that the program itself
// refers to, so that what it says of a setting is what the page says.
package docs

import (
	_ "embed"
	"strings"
)

//go:embed configuration.md
var configuration string

// A Setting is what configuration.md says of a setting.
type Setting struct {
	Type    string
	Default string // empty if there is none
	Meaning string
}

// Settings returns the settings in configuration.md by their paths.
func Settings() map[string]Setting {
	all := map[string]Setting{}
	for line := range strings.Lines(configuration) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		path, ok := code(cells[0])
		if !ok || len(cells) != 4 {
			continue
		}
		value, _ := code(cells[2])
		all[path] = Setting{Type: cells[1], Default: value, Meaning: cells[3]}
	}
	return all
}

// code returns the text in a cell that is nothing but code.
func code(cell string) (string, bool) {
	text := strings.Trim(cell, "`")
	if cell != "`"+text+"`" {
		return "", false
	}
	return text, true
}
