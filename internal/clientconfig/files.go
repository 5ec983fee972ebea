package clientconfig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// attempts limits how often a change is tried while other programs write the file.
const attempts = 5

var errChanging = errors.New("another program keeps changing this file; close it and try again")

// Resolve returns the absolute path of a file, without symbolic links.
func Resolve(file string) (string, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(file)
}

// Wrap wraps servers in the file of a client, and records how to undo that.
func (f Files) Wrap(c Client, file string, w WrapOptions) (Change, error) {
	target, err := Resolve(file) // a link to the file stays a link
	if err != nil {
		return Change{}, err
	}
	unlock, err := f.lock(target)
	if err != nil {
		return Change{}, err
	}
	defer unlock()
	var change Change
	err = f.change(target, func(content []byte) ([]byte, error) {
		if change, err = c.Wrap(content, w); err != nil || len(change.Patches) == 0 {
			return content, err
		}
		return change.Text, f.remember(c, target, content, change.Patches, nil)
	})
	return change, err
}

// change replaces the content of a file by the result of edit. If another program writes the file
// meanwhile, it calls edit again. The caller holds the lock of the file until the record matches
// the file.
func (f Files) change(file string, edit func([]byte) ([]byte, error)) error {
	dir, base := filepath.Split(file)
	err := errors.Join(removeLeftovers(filepath.Clean(dir), tempPrefix(base)), removeLeftovers(f.Dir, "."+filepath.Base(f.prefix(file))))
	if err != nil {
		return err
	}
	for range attempts {
		done, err := f.attempt(file, edit)
		if done || err != nil {
			return err
		}
	}
	return errChanging
}

// attempt tries to change a file. It returns false if the file changes meanwhile.
func (f Files) attempt(file string, edit func([]byte) ([]byte, error)) (bool, error) {
	before, mode, err := read(file)
	if err != nil {
		return false, err
	}
	after, err := edit(before)
	if err != nil || bytes.Equal(before, after) {
		return true, err
	}
	f.reachedStep("recorded")
	now, _, err := read(file)
	if err != nil || !bytes.Equal(before, now) {
		return false, err
	}
	if err := f.replace(file, after, mode); err != nil {
		return false, err
	}
	f.reachedStep("renamed")
	return true, nil
}

// read returns the content and permissions of a writable file.
func read(file string) ([]byte, os.FileMode, error) {
	about, err := os.Stat(file)
	if err != nil {
		return nil, 0, err
	}
	if !about.Mode().IsRegular() {
		return nil, 0, errors.New("not a regular file")
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

// A Restoration is the result of restoring a file.
type Restoration struct {
	Before, Text []byte   // the file before and after
	Identical    bool     // the file equals the backup from before the first change
	KeptFiles    []string // files of the gate that were changed since servers were merged
	Kept         []string // servers that were changed since they were wrapped
}

// ErrNothingToUndo reports a file without a record, because another process has restored it.
var ErrNothingToUndo = errors.New("there is nothing to undo")

// Undo restores the file of a record and keeps other changes that were made since. It reads the
// record again, because another process may have changed the file meanwhile.
func (f Files) Undo(r Record) (Restoration, error) {
	unlock, err := f.lock(r.File)
	if err != nil {
		return Restoration{}, err
	}
	defer unlock()
	now, err := readRecord(f.prefix(r.File) + ".json")
	if err != nil {
		return Restoration{}, err
	}
	if now == nil {
		return Restoration{}, ErrNothingToUndo
	}
	var u Restoration
	err = f.change(r.File, func(content []byte) ([]byte, error) {
		var err error
		//mutate:swap "now" "r" TestUndoKeepsRecordOfConcurrentWrite undo uses an outdated record
		u, err = now.Plan(content)
		return u.Text, err
	})
	if err != nil {
		return Restoration{}, err
	}
	f.reachedStep("undone")
	if u.KeptFiles, err = now.Merged.forgetFiles(); err != nil {
		return u, err
	}
	return u, f.forget(*now, u)
}

// Plan returns the result of Undo for this content of the file.
func (r Record) Plan(content []byte) (Restoration, error) {
	c, err := Find(r.Client)
	if err != nil {
		return Restoration{}, err
	}
	u := Restoration{Before: content}
	if content, err = r.Merged.undo(c, content, r.Backup); err != nil {
		return Restoration{}, err
	}
	if u.Text, u.Kept, err = r.unwrap(c, content); err != nil {
		return Restoration{}, err
	}
	backup, err := os.ReadFile(r.Backup)
	u.Identical = err == nil && bytes.Equal(backup, u.Text)
	return u, nil
}

// unwrap returns the content without the wrapping of servers, and the servers that were changed since.
func (r Record) unwrap(c Client, content []byte) (text []byte, kept []string, err error) {
	root, err := parse(c.language, content)
	if err != nil {
		return nil, nil, err
	}
	var back []Edit
	var targets [][]string
	for _, p := range r.Patches {
		e, err := p.entry(root, c)
		if err != nil {
			return nil, nil, err
		}
		if !e.isWrappedBy(p.isGate) {
			continue // the server or its wrapping was removed, or was never written
		}
		if !p.intact(content, root) {
			if !p.isRemote() {
				kept = append(kept, e.Name)
			}
			if p, err = p.current(content, root, e); err != nil {
				return nil, nil, err
			}
		}
		back, targets = append(back, p.reversed()...), append(append(targets, e.targets...), p.targets()...)
	}
	if text, err = apply(content, root, back); err != nil {
		return nil, nil, err
	}
	if _, err := c.verify(root, text, targets); err != nil {
		return nil, nil, err
	}
	return text, kept, nil
}

// entry returns the present state of the server. Its status is empty if the server was removed.
func (p Patch) entry(root *node, c Client) (entry, error) {
	m, err := root.at(p.Server)
	if m == nil || err != nil {
		return entry{}, err
	}
	e := entry{Server: Server{Name: m.name}, path: p.Server}
	if err := e.read(m.value, c); err != nil {
		return entry{}, fmt.Errorf("server %q has an unknown form now: %w", m.name, err)
	}
	return e, nil
}

// isGate reports whether a program is the gate of this patch, or another version that has replaced
// it.
func (p Patch) isGate(program string) bool { return program == p.Program || LooksLikeGate(program) }

// intact reports whether the patched values are unchanged.
func (p Patch) intact(content []byte, root *node) bool {
	return !slices.ContainsFunc(p.Edits, func(e Edit) bool {
		m, err := root.at(e.after())
		return err != nil || m == nil || !bytes.HasSuffix(content[:m.value.end], []byte(e.After))
	})
}

// reversed returns the edits that undo the patch.
func (p Patch) reversed() []Edit {
	var back []Edit
	for _, e := range p.Edits {
		back = append(back, Edit{Path: e.after(), Before: e.After, After: e.Before})
	}
	return back
}

// current returns the patch that would wrap the server e as it is now.
func (p Patch) current(content []byte, root *node, e entry) (Patch, error) {
	if p.isRemote() {
		return p.reformatted(content, root)
	}
	return e.current(content, root)
}

// current returns the patch that would wrap a server with a command as it is now.
func (e entry) current(content []byte, root *node) (Patch, error) {
	end := slices.IndexFunc(e.argv, func(a *node) bool { return a.value == "--" })
	if end < 0 || end+1 == len(e.argv) {
		return Patch{}, fmt.Errorf("server %q was not wrapped by thoughtgate: it has no command after --", e.Name)
	}
	command, err := root.at(e.command)
	if err != nil {
		return Patch{}, err
	}
	if e.args == nil {
		return Patch{Server: e.path, Edits: []Edit{prependedEdit(content, e.command, command.value, end+1)}}, nil
	}
	args, err := root.at(e.args)
	if err != nil {
		return Patch{}, err
	}
	program := e.argv[end+1]
	return Patch{Server: e.path, Edits: []Edit{
		{Path: e.command, Before: program.in(content), After: command.value.in(content)},
		prependedEdit(content, e.args, args.value, end+1),
	}}, nil
}

// prependedEdit returns the edit that would have added the first n elements of a list.
func prependedEdit(content []byte, path []string, list *node, n int) Edit {
	before := "[]"
	if n < len(list.items) {
		before = string(content[list.start:list.items[0].start]) + string(content[list.items[n].start:list.end])
	}
	return Edit{Path: path, Before: before, After: list.in(content)}
}
