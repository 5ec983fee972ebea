// Package docs holds what the documentation says of each setting, for the JSON Schema that
// the program prints.
package docs

import (
	_ "embed"
	"strings"
)

//go:embed settings.txt
var settings string

// A Setting is what the documentation says of a setting.
type Setting struct {
	Path    string
	Default string // as a file would write it, in backquotes; or in words
	Meaning string
	Common  bool // one of those that most people use
}

// Value returns the default as a file would write it, or nothing if a file cannot write it.
func (s Setting) Value() string {
	value := strings.Trim(s.Default, "`")
	if s.Default != "`"+value+"`" {
		return ""
	}
	return value
}

// Settings returns what the documentation says of each setting.
func Settings() []Setting {
	var all []Setting
	for line := range strings.Lines(settings) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line, common := strings.CutPrefix(strings.TrimSpace(line), "* ")
		path, rest, _ := strings.Cut(line, " |")
		value, meaning, _ := strings.Cut(rest, "|")
		all = append(all, Setting{path, strings.TrimSpace(value), strings.TrimSpace(meaning), common})
	}
	return all
}
