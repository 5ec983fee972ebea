package isolate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/clientconfig"
)

// A record has what Undo needs. It is written before anything of the person changes.
type record struct {
	Files  []file  `json:"files"`
	Grants []Grant `json:"grants"`
}

// A file is a file of the person that is changed or removed.
type file struct {
	Client  string               `json:"client,omitzero"` // empty for a file that is removed
	Name    string               `json:"name"`
	Mode    fs.FileMode          `json:"mode"`
	Before  []byte               `json:"before"`
	After   []byte               `json:"after,omitempty"` // empty if it is removed
	Patches []clientconfig.Patch `json:"patches,omitempty"`
}

func (s *Setup) saveRecord() error {
	text, err := json.Marshal(s.record)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(s.o.at(s.paths.etc), 0o750), clientconfig.Replace(s.o.at(s.paths.record), text, 0o600))
}

// Undo returns the work that undoes a setup, also after a part of it. It can be repeated. The work
// writes what the person should know to notes. The store stays, for root alone.
func Undo(o Options, notes io.Writer) (*Work, error) {
	p := pathsOf(o.Person.Name)
	if err := o.prepare(); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(o.at(p.record))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not isolated: there is no %s", o.Person.Name, p.record)
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", p.record, err)
	}
	w := &Work{o: o}
	for _, f := range r.Files {
		w.add("restore "+f.Name, nil, func(context.Context) error {
			return o.asPerson(func() error { return f.restore(notes) })
		})
	}
	stop := [][]string{{"systemctl", "disable", "--now", p.user + ".service"}}
	w.add("stop the gate, and remove "+p.unit, stop, func(ctx context.Context) error {
		if _, err := os.Stat(o.at(p.unit)); errors.Is(err, fs.ErrNotExist) {
			return nil // it was not written, or removed before
		}
		return errors.Join(o.run(ctx, stop), os.Remove(o.at(p.unit)), o.run(ctx, [][]string{{"systemctl", "daemon-reload"}}))
	})
	for _, g := range r.Grants {
		// Root gives away only what the servers have made, so that the person can revoke the rest.
		own, revoke := g.disown(o.Person.Name, p.user), g.revocation(o.Person.Name, p.user)
		w.add("take "+g.Path+" away from "+p.user, slices.Concat(own, revoke), func(ctx context.Context) error {
			if !o.userExists(p.user) {
				return nil
			}
			return errors.Join(o.run(ctx, own), o.runAsPerson(ctx, revoke))
		})
	}
	remove := [][]string{{"userdel", p.user}}
	w.add("remove the user, and keep the store in "+p.state+" for root alone", remove, func(ctx context.Context) error {
		if !o.userExists(p.user) {
			return nil
		}
		return errors.Join(o.keepForRoot(p.state), o.run(ctx, remove))
	})
	w.add("remove "+p.etc+", except the key of the store", nil, func(context.Context) error { return o.forget(p) })
	return w, nil
}

// forget removes the files of a setup. The record is among the last, so that Undo can be repeated.
func (o Options) forget(p paths) error {
	files := []string{p.config, p.policy, p.secrets, p.record}
	if _, err := os.Stat(o.at(p.state)); errors.Is(err, fs.ErrNotExist) {
		files = slices.Insert(files, 0, p.key)
		files = append(files, p.etc)
	}
	for _, f := range files {
		if err := os.Remove(o.at(f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// add adds a step that runs commands, among other things.
func (w *Work) add(about string, commands [][]string, do func(context.Context) error) {
	w.steps = append(w.steps, step{about, lines(commands), do})
}

// restore restores a file. If others have changed it, their changes stay.
func (f file) restore(w io.Writer) error {
	now, err := os.ReadFile(f.Name)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && f.After != nil && bytes.Equal(now, f.After):
		return clientconfig.Replace(f.Name, f.Before, f.Mode)
	case err != nil || f.After == nil || bytes.Equal(now, f.Before):
		return err
	}
	c, err := clientconfig.Find(f.Client)
	if err != nil {
		return err
	}
	text, kept, err := c.Restore(now, f.Patches)
	if err == nil && !slices.Equal(now, text) {
		err = clientconfig.Replace(f.Name, text, f.Mode)
	}
	if err != nil || len(kept) > 0 {
		copied := f.Name + ".before-isolate"
		_, _ = fmt.Fprintf(w, "  others have changed %s (%q, %v): the file from before is %s\n", f.Name, kept, err, copied)
		return clientconfig.Replace(copied, f.Before, f.Mode)
	}
	return nil
}
