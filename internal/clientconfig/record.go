package clientconfig

import (
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

// A Record is what is known of a file that was changed, so that it can be
// restored. It is written before the file is, so it may have patches that never
// came about.
type Record struct {
	Client  string  `json:"client"`
	File    string  `json:"file"`   // its path without symbolic links
	Backup  string  `json:"backup"` // a copy of the file before the first change
	Patches []Patch `json:"patches"`
}

// Files changes files and remembers how to restore them.
type Files struct {
	Dir  string            // for records, copies and locks; private
	step func(name string) // called between steps; tests stop the process there
}

// Records returns what is known of all files that were changed.
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

// prefix returns what the names of all files in f.Dir about a file begin with.
func (f Files) prefix(file string) string {
	sum := sha256.Sum256([]byte(file))
	return filepath.Join(f.Dir, hex.EncodeToString(sum[:12]))
}

// lock makes sure that nobody else uses the records about a file, or changes it
// by means of this package.
func (f Files) lock(file string) (func(), error) {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return nil, err
	}
	return lockedfile.MutexAt(f.prefix(file) + ".lock").Lock()
}

// readRecord returns a record, or nil if there is none.
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

func (f Files) writeRecord(name string, r Record) error {
	content, err := json.Marshal(r, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	return f.replace(name, content, 0o600)
}

// remember writes down, before a file is changed, how to undo the change.
func (f Files) remember(c Client, file string, content []byte, patches []Patch) error {
	prefix := f.prefix(file)
	old, err := readRecord(prefix + ".json")
	if err != nil {
		return err
	}
	r := Record{Client: c.Name, File: file, Patches: patches}
	if old != nil {
		root, err := parse(c.language, content)
		if err != nil {
			return err
		}
		// Earlier changes that are still in the file are undone together with these,
		// and the copy from before them is the one to keep.
		for _, p := range old.Patches {
			if p.intact(content, root) {
				r.Patches, r.Backup = append(r.Patches, p), old.Backup
			}
		}
	}
	if r.Backup == "" {
		sum := sha256.Sum256(content)
		r.Backup = prefix + "-" + hex.EncodeToString(sum[:6]) + ".backup"
		if err := f.replace(r.Backup, content, 0o600); err != nil {
			return err
		}
	}
	f.at("copied")
	if err := f.writeRecord(prefix+".json", r); err != nil {
		return err
	}
	if old != nil && old.Backup != r.Backup {
		return removed(old.Backup)
	}
	return nil
}

// removed removes a file, which may be gone already.
func removed(name string) error {
	if err := os.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// forget removes the record of a file, and its copy unless that differs from what
// was restored.
func (f Files) forget(r Record, u Undoing) error {
	if err := removed(f.prefix(r.File) + ".json"); err != nil || !u.Identical {
		return err
	}
	return removed(r.Backup)
}

func (f Files) at(step string) {
	if f.step != nil {
		f.step(step)
	}
}

// replace makes content that of a file in one step, for the disk as well.
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
	f.at("written")
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

// tempPrefix begins the names of files that become base.
func tempPrefix(base string) string { return "." + base + ".thoughtgate-" }

// tidy removes what a process that was stopped has left in a directory.
func tidy(dir, prefix string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			err = errors.Join(err, removed(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
