package clientconfig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// attempts is how often a change is tried while others write the file.
const attempts = 5

var errMoving = errors.New("another program keeps changing this file; close it and try again")

// Resolve returns the absolute path of a file, without symbolic links.
func Resolve(file string) (string, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(file)
}

// Wrap wraps servers in the file of a client, and remembers how to undo that.
func (f Files) Wrap(c Client, file string, w Wrapping) (Change, error) {
	target, err := Resolve(file) // a link to the file stays a link
	if err != nil {
		return Change{}, err
	}
	var change Change
	err = f.change(target, func(content []byte) ([]byte, error) {
		if change, err = c.Wrap(content, w); err != nil || len(change.Patches) == 0 {
			return content, err
		}
		return change.Text, f.remember(c, target, content, change.Patches)
	})
	return change, err
}

// change replaces a file by what edit makes of it, unless that is the same. If
// another program writes the file meanwhile, edit is asked again.
func (f Files) change(file string, edit func([]byte) ([]byte, error)) error {
	unlock, err := f.lock(file)
	if err != nil {
		return err
	}
	defer unlock()
	dir, base := filepath.Split(file)
	err = errors.Join(tidy(filepath.Clean(dir), tempPrefix(base)), tidy(f.Dir, "."+filepath.Base(f.prefix(file))))
	if err != nil {
		return err
	}
	for range attempts {
		done, err := f.attempt(file, edit)
		if done || err != nil {
			return err
		}
	}
	return errMoving
}

// attempt changes a file, unless it changes while that is prepared.
func (f Files) attempt(file string, edit func([]byte) ([]byte, error)) (bool, error) {
	before, mode, err := read(file)
	if err != nil {
		return false, err
	}
	after, err := edit(before)
	if err != nil || bytes.Equal(before, after) {
		return true, err
	}
	f.at("recorded")
	now, _, err := read(file)
	if err != nil || !bytes.Equal(before, now) {
		return false, err
	}
	if err := f.replace(file, after, mode); err != nil {
		return false, err
	}
	f.at("renamed")
	return true, nil
}

// read returns the content and the permissions of a file that may be written.
func read(file string) ([]byte, os.FileMode, error) {
	about, err := os.Stat(file)
	if err != nil {
		return nil, 0, err
	}
	if !about.Mode().IsRegular() {
		return nil, 0, errors.New("this is not a regular file")
	}
	writable, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return nil, 0, err
	}
	if err := writable.Close(); err != nil {
		return nil, 0, err
	}
	content, err := os.ReadFile(file)
	return content, about.Mode().Perm(), err
}

// An Undoing is what becomes of a file that is restored.
type Undoing struct {
	Before, Text []byte   // the file before and after
	Identical    bool     // the file is byte for byte what it was before the first change
	Kept         []string // servers that somebody has changed since, apart from the wrapping
}

// Undo restores a file. If somebody has changed it since, their changes stay.
func (f Files) Undo(r Record) (Undoing, error) {
	var u Undoing
	err := f.change(r.File, func(content []byte) ([]byte, error) {
		var err error
		u, err = r.Plan(content)
		return u.Text, err
	})
	if err != nil {
		return Undoing{}, err
	}
	f.at("undone")
	return u, f.forget(r, u)
}

// Plan returns what Undo would make of the file's content.
func (r Record) Plan(content []byte) (Undoing, error) {
	c, err := Find(r.Client)
	if err != nil {
		return Undoing{}, err
	}
	root, err := parse(c.language, content)
	if err != nil {
		return Undoing{}, err
	}
	u := Undoing{Before: content}
	var back []Edit
	var targets [][]string
	for _, p := range r.Patches {
		e, err := p.entry(root)
		if err != nil {
			return Undoing{}, err
		}
		if e.Status != Unchanged {
			continue // somebody has removed the server or its wrapping, or that never came about
		}
		if !p.intact(content, root) {
			u.Kept = append(u.Kept, e.Name)
			p, err = e.current(content, root)
		}
		if err != nil {
			return Undoing{}, err
		}
		back, targets = append(back, p.reversed()...), append(targets, e.targets...)
	}
	if u.Text, err = apply(content, root, back); err != nil {
		return Undoing{}, err
	}
	if _, err := c.verify(root, u.Text, targets); err != nil {
		return Undoing{}, err
	}
	backup, err := os.ReadFile(r.Backup)
	u.Identical = err == nil && bytes.Equal(backup, u.Text)
	return u, nil
}

// entry returns what has become of the server. Without a standing it is gone.
func (p Patch) entry(root *node) (entry, error) {
	m, err := root.at(p.Server)
	if m == nil || err != nil {
		return entry{}, err
	}
	e := entry{Server: Server{Name: m.name}, path: p.Server}
	if err := e.read(m.value); err != nil {
		return entry{}, fmt.Errorf("server %q was changed into a form that is not known: %w", m.name, err)
	}
	return e, nil
}

// intact reports whether values are as the patch has left them.
func (p Patch) intact(content []byte, root *node) bool {
	return !slices.ContainsFunc(p.Edits, func(e Edit) bool {
		m, err := root.at(e.Path)
		return err != nil || m == nil || !bytes.HasSuffix(content[:m.value.end], []byte(e.After))
	})
}

// reversed returns the edits that undo the patch.
func (p Patch) reversed() []Edit {
	var back []Edit
	for _, e := range p.Edits {
		back = append(back, Edit{e.Path, e.After, e.Before})
	}
	return back
}

// current returns the patch that would have wrapped a server as it is now.
func (e entry) current(content []byte, root *node) (Patch, error) {
	end := slices.IndexFunc(e.argv, func(a *node) bool { return a.value == "--" })
	if end < 0 || end+1 == len(e.argv) {
		return Patch{}, fmt.Errorf("server %q is not as thoughtgate wraps servers: it has no command after --", e.Name)
	}
	command, err := root.at(e.command)
	if err != nil {
		return Patch{}, err
	}
	if e.args == nil {
		return Patch{e.path, []Edit{withFirst(content, e.command, command.value, end+1)}}, nil
	}
	args, err := root.at(e.args)
	if err != nil {
		return Patch{}, err
	}
	program := e.argv[end+1]
	return Patch{e.path, []Edit{
		{e.command, string(content[program.start:program.end]), string(content[command.value.start:command.value.end])},
		withFirst(content, e.args, args.value, end+1),
	}}, nil
}

// withFirst returns the edit that would have added the first n elements of a list.
func withFirst(content []byte, path []string, list *node, n int) Edit {
	before := "[]"
	if n < len(list.items) {
		before = string(content[list.start:list.items[0].start]) + string(content[list.items[n].start:list.end])
	}
	return Edit{path, before, string(content[list.start:list.end])}
}
