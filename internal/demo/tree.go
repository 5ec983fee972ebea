package demo

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
)

// maxTree limits the bytes of all files together.
const maxTree = 4 << 20

// A tree is a minimal file system: files by absolute path. A directory exists as long as there is a
// file below it.
type tree struct {
	mu    sync.RWMutex
	files map[string]string
}

func newTree() *tree {
	return &tree{files: map[string]string{
		"/README.txt":                "Everything here lives in memory. Break what you like: a restart brings it back.\n",
		"/notes/todo.txt":            "1. teach the agent to ask first\n2. teach the approver to read first\n3. lunch\n",
		"/notes/haiku.txt":           "The intern asks why\nthe agent tidied the disk.\nNo one was asked. — 夜\n",
		"/payroll/bonuses.csv":       "name,bonus\nthe intern,12000\nthe agent,0\n",
		"/backups/do-not-delete.txt": "The last agent that deleted this file called it \"tidying up\".\n",
	}}
}

// list returns the paths below dir in order, each with its size.
func (t *tree) list(dir string) ([]string, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	below := strings.TrimSuffix(clean(dir), "/") + "/"
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		if strings.HasPrefix(name, below) {
			lines = append(lines, fmt.Sprintf("%s (%d bytes)", name, len(t.files[name])))
		}
	}
	if len(lines) == 0 && below != "/" {
		return nil, fmt.Errorf("%s: no such directory", clean(dir))
	}
	return lines, nil
}

func (t *tree) read(name string) (string, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	text, ok := t.files[clean(name)]
	if !ok {
		return "", t.missing(name)
	}
	return text, nil
}

// write stores text under name and reports whether the file is new.
func (t *tree) write(name, text string) (created bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name = clean(name)
	if t.isDir(name) {
		return false, t.missing(name)
	}
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if _, ok := t.files[dir]; ok {
			return false, fmt.Errorf("%s is a file, not a directory", dir)
		}
	}
	size := len(text)
	for other, content := range t.files {
		if other != name {
			size += len(content)
		}
	}
	if size > maxTree {
		return false, errors.New("the disk is full: it holds 4 MiB")
	}
	_, existed := t.files[name]
	t.files[name] = text
	return !existed, nil
}

func (t *tree) remove(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.files[clean(name)]; !ok {
		return t.missing(name)
	}
	delete(t.files, clean(name))
	return nil
}

// missing returns why name cannot be used as a file. The caller holds the lock.
func (t *tree) missing(name string) error {
	if t.isDir(clean(name)) {
		return fmt.Errorf("%s is a directory", clean(name))
	}
	return fmt.Errorf("%s: no such file", clean(name))
}

func (t *tree) isDir(name string) bool {
	below := strings.TrimSuffix(name, "/") + "/"
	for file := range t.files {
		if strings.HasPrefix(file, below) {
			return true
		}
	}
	return name == "/"
}

// clean returns the canonical form of a path. It never leads out of the tree.
func clean(name string) string { return path.Clean("/" + name) }
