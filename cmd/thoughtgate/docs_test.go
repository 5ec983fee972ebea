package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	fenced  = regexp.MustCompile("(?ms)^ *```[a-z]*\n(.*?)^ *```$")
	typed   = regexp.MustCompile(`(?m)^ *(?:\$ )?(?:(?:bin/|go run \./cmd/)?thoughtgate|make) ([a-z].*)$`)
	inline  = regexp.MustCompile("`thoughtgate ([a-z][^`]*)`")
	word    = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
	endOf   = regexp.MustCompile(`\s+(#|>|\||&&|2>).*$`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	targets = regexp.MustCompile(`(?m)^([a-z-]+):`)
)

// The program accepts every command in the documentation as written, and the Makefile has
// every target.
func TestDocumentedCommands(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, target := range targets.FindAllStringSubmatch(string(makefile), -1) {
		known[target[1]] = true
	}
	documented := map[string]bool{}
	for page, text := range pages(t) {
		for _, block := range fenced.FindAllStringSubmatch(text, -1) {
			for _, line := range typed.FindAllStringSubmatch(block[1], -1) {
				command := endOf.ReplaceAllString(line[1], "")
				if strings.HasPrefix(strings.TrimSpace(line[0]), "make") {
					if !known[strings.Fields(command)[0]] {
						t.Errorf("%s: make %s: no such target", page, command)
					}
					continue
				}
				documented[understood(t, page, command)] = true
			}
		}
		for _, line := range inline.FindAllStringSubmatch(text, -1) {
			if line[1] != "journal 1" { // an input of the hash, not a command
				documented[understood(t, page, line[1])] = true
			}
		}
	}
	for _, cmd := range newRoot().Commands() {
		if !documented[cmd.Name()] && cmd.Name() != "version" && cmd.Name() != "help" {
			t.Errorf("thoughtgate %s is not in the documentation", cmd.Name())
		}
	}
}

// Every link within the project leads to an existing file and section.
func TestDocumentedLinks(t *testing.T) {
	all := pages(t)
	for page, text := range all {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			target, section, _ := strings.Cut(m[1], "#")
			if strings.Contains(m[1], "://") {
				continue
			}
			to := page
			if target != "" {
				to = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join("../..", to)); err != nil {
				t.Errorf("%s: the target of the link %s does not exist", page, m[1])
			}
			if section != "" && !slices.Contains(sections(all[to]), section) {
				t.Errorf("%s: the section %s does not exist", page, m[1])
			}
		}
	}
}

// sections returns the anchors of the headings of a page.
func sections(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.Map(func(r rune) rune {
			if strings.ContainsRune("-_", r) || unicode.IsLetter(r) || unicode.IsDigit(r) {
				return unicode.ToLower(r)
			}
			if r == ' ' {
				return '-'
			}
			return -1
		}, m[1])
		all = append(all, name)
	}
	return all
}

// understood checks that the program accepts a command, and returns the first word of the
// command.
func understood(t *testing.T, page, line string) string {
	t.Helper()
	line = strings.TrimSuffix(strings.ReplaceAll(line, " …", ""), " --") // a mentioned wrap command
	words := word.FindAllString(line, -1)
	root := newRoot()
	root.InitDefaultCompletionCmd()
	cmd, args, err := root.Find(words)
	if err == nil {
		err = cmd.ParseFlags(args)
	}
	// A command that is only mentioned may lack its arguments.
	if err == nil && len(args) > 0 {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		t.Errorf("%s: thoughtgate %s: %v", page, line, err)
	}
	return words[0]
}

// pages returns the content of all documentation pages by file name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("../../*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"../../docs", "../../deploy"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Ext(path) == ".md" {
				names = append(names, path)
			}
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	all := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(name, "../../")] = string(text)
	}
	return all
}
