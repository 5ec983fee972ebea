package clientconfig

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/lockedfile"
)

// A Record says how to restore a changed file. It is written before the file, so it may have
// patches that were never made.
type Record struct {
	Client  string  `json:"client"`
	File    string  `json:"file"`   // its path without symbolic links
	Backup  string  `json:"backup"` // a copy of the file before the first change
	Patches []Patch `json:"patches"`
	Merged  *Merged `json:"merged,omitempty"` // nil if no servers were merged
}

// Files changes files and remembers how to restore them.
type Files struct {
	Dir    string            // private directory for records, backups and locks
	onStep func(name string) // called between steps; tests stop the process there
}

// Records returns the records of all changed files.
func (f Files) Records() ([]Record, error) {
	names, err := filepath.Glob(filepath.Join(f.Dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Record
	for _, name := range names {
		r, err := readRecord(name)
		if err != nil {
			return nil, err
		}
		if r != nil {
			all = append(all, *r)
		}
	}
	return all, nil
}

// prefix returns the beginning of the names of all files in f.Dir that concern a file.
func (f Files) prefix(file string) string {
	sum := sha256.Sum256([]byte(file))
	return filepath.Join(f.Dir, hex.EncodeToString(sum[:12]))
}

// lock locks a file and its record against other users of this package.
func (f Files) lock(file string) (func(), error) {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return nil, err
	}
	return lockedfile.MutexAt(f.prefix(file) + ".lock").Lock()
}

// readRecord returns a record, or nil if it does not exist.
func readRecord(name string) (*Record, error) {
	content, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := new(Record)
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", name, err)
	}
	return r, nil
}

// remember records how to undo a change, before the file is changed.
func (f Files) remember(c Client, file string, content []byte, patches []Patch, merged *Merged) error {
	prefix := f.prefix(file)
	old, err := readRecord(prefix + ".json")
	if err != nil {
		return err
	}
	r := Record{Client: c.Name, File: file, Patches: patches, Merged: merged}
	if err := r.keep(old, c, content); err != nil {
		return err
	}
	if r.Backup == "" {
		sum := sha256.Sum256(content)
		r.Backup = prefix + "-" + hex.EncodeToString(sum[:6]) + ".backup"
		if err := f.replace(r.Backup, content, 0o600); err != nil {
			return err
		}
	}
	f.reachedStep("copied")
	record, err := json.Marshal(r, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	if err := f.replace(prefix+".json", record, 0o600); err != nil {
		return err
	}
	if old != nil && old.Backup != r.Backup {
		return removeIfExists(old.Backup)
	}
	return nil
}

// keep keeps the earlier changes that are still in the file, together with the backup from before them.
func (r *Record) keep(old *Record, c Client, content []byte) error {
	if old == nil {
		return nil
	}
	root, err := parse(c.language, content)
	if err != nil {
		return err
	}
	known := old.mergedIn(c, content)
	if known != nil {
		r.Merged, r.Backup = cmp.Or(r.Merged, known), old.Backup
	}
	for _, p := range old.Patches {
		if p.intact(content, root) {
			r.Patches, r.Backup = append(r.Patches, p), old.Backup
		}
	}
	if r.Backup != "" && r.Merged != nil && (known == nil || digestOf(content) != known.Written) {
		r.Merged.Written = "" // the backup does not have changes that others have made since
	}
	return nil
}

// removeIfExists removes a file, if it exists.
func removeIfExists(name string) error {
	if err := os.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// forget removes the record of a restored file, and its backup if that is identical to the file.
func (f Files) forget(r Record, u Restoration) error {
	if err := removeIfExists(f.prefix(r.File) + ".json"); err != nil || !u.Identical {
		return err
	}
	return removeIfExists(r.Backup)
}

func (f Files) reachedStep(step string) {
	if f.onStep != nil {
		f.onStep(step)
	}
}

// replace writes a file atomically and durably.
func (f Files) replace(name string, content []byte, mode os.FileMode) (err error) {
	dir, base := filepath.Split(name)
	tmp, err := os.CreateTemp(dir, tempPrefix(base)+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if err := fill(tmp, content, mode, name); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	f.reachedStep("written")
	if err := os.Rename(tmp.Name(), name); err != nil {
		return err
	}
	return syncDir(dir)
}

func fill(tmp *os.File, content []byte, mode os.FileMode, name string) error {
	if _, err := tmp.Write(content); err != nil {
		return err
	}
	if err := tmp.Chmod(mode); err != nil {
		return err
	}
	if err := keepOwner(tmp, name); err != nil {
		return err
	}
	return tmp.Sync()
}

// tempPrefix returns the beginning of the names of temporary files for base.
func tempPrefix(base string) string { return "." + base + ".thoughtgate-" }

// removeLeftovers removes temporary files that a killed process has left in a directory.
func removeLeftovers(dir, prefix string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			err = errors.Join(err, removeIfExists(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
