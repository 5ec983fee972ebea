package clientconfig

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// IsolateOptions say which gate has the servers of a client from now on.
type IsolateOptions struct {
	Program string               // the gate's program, which the client starts
	Socket  string               // of the gate
	Add     func(Program) string // gives the gate a server, and returns its name there
}

// A Program is a server as a client starts it.
type Program struct {
	Name    string // in the client's file, as the name of an upstream
	Command []string
	Env     map[string]string
}

// An Isolation is the result of [Client.Isolate].
type Isolation struct {
	Change

	Masked []byte // the file before the change, without the values of the servers' variables
}

// Isolate returns the file of a client that reaches its servers only through the gate at a socket.
// The commands of the servers and the values of their environment variables are no longer in the
// file: o.Add gets them. [Client.Restore] undoes that.
func (c Client) Isolate(content []byte, o IsolateOptions) (change Isolation, err error) {
	root, err := parse(c.language, content)
	if err != nil {
		return change, err
	}
	entries, err := c.entries(root, WrapOptions{Command: o.Program, IsGate: LooksLikeGate})
	if err != nil {
		return change, err
	}
	var all, masks []Edit
	var targets [][]string
	for _, e := range entries {
		if e.remote != nil {
			e.Status = Remote
		}
		if e.Status == Unchanged { // wrapped, but its command and its variables are here
			e.Status = Wrapped
		}
		var secrets []Edit
		if e.Status == Wrapped {
			var edits []Edit
			if edits, secrets, err = c.isolate(content, root, &e, o); err != nil {
				return change, fmt.Errorf("server %q: %w", e.Name, err)
			}
			if len(edits) > 0 {
				change.Patches = append(change.Patches, Patch{Server: e.path, Program: o.Program, Edits: slices.Concat(edits, secrets)})
			}
			all, targets = append(all, edits...), append(targets, e.targets...)
		}
		change.Servers = append(change.Servers, e.Server)
		for _, s := range secrets {
			all, targets = append(all, s), append(targets, s.Path)
			masks = append(masks, Edit{Path: s.Path, Before: s.Before, After: c.language.quote("(a secret)")})
		}
	}
	if change.Masked, err = apply(content, root, masks); err != nil {
		return change, err
	}
	if change.Text, err = apply(content, root, all); err != nil {
		return change, err
	}
	_, err = c.verify(root, change.Text, targets)
	return change, err
}

// isolate returns the edits of a server's command and of its variables. If the gate cannot start the
// server as the client does, there are none and the warning says why.
func (c Client) isolate(content []byte, root *node, e *entry, o IsolateOptions) (edits, secrets []Edit, err error) {
	n, err := root.at(e.path)
	if err != nil {
		return nil, nil, err
	}
	p := Program{Name: gateName(e.Name), Command: unwrapped(e.argv), Env: map[string]string{}}
	var why string
	switch {
	case slices.ContainsFunc(e.argv, func(a *node) bool { return a.value == "--socket" }) && e.isWrappedBy(LooksLikeGate):
		e.Status = Unchanged
		return nil, nil, nil
	case len(p.Command) == 0:
		why = "wrap --url connects it to a server over HTTP"
	case n.value.find("envFile") != nil:
		why = "its variables come from a file"
	default:
		secrets, why = environment(content, n.value, e, p.Env)
	}
	for _, text := range p.Command {
		if strings.Contains(text, "${") {
			why = "its command has a variable of the client"
		}
	}
	if why != "" {
		e.Status, e.Warning = NotChosen, why+", which the gate does not know: it stays as it is"
		return nil, nil, nil
	}
	if n.value.find("cwd") != nil {
		e.Warning = "it starts in the directory of the gate, not in cwd"
	}
	edits, err = c.thin(content, root, *e, o, o.Add(p))
	return edits, secrets, err
}

// unwrapped returns the command of a server without that of a wrap, or nil if the wrap has none.
func unwrapped(argv []*node) (command []string) {
	e := entry{argv: argv}
	if e.isWrappedBy(LooksLikeGate) {
		args := argv[2:]
		end := 0
		for end < len(args) && !endsFlags(args, end) {
			end++
		}
		argv = args[min(end+1, len(args)):]
	}
	for _, a := range argv {
		command = append(command, a.value)
	}
	return command
}

// environment adds the environment variables of a server to env. It returns the edits that remove
// their values, or why the gate cannot know them.
func environment(content []byte, n *node, e *entry, env map[string]string) (edits []Edit, why string) {
	tables, paths := []*node{n}, [][]string{e.path}
	if command := n.find("command"); command != nil && command.value.kind == object {
		tables, paths = append(tables, command.value), append(paths, append(slices.Clone(e.path), "command"))
	}
	for i, table := range tables {
		for _, name := range []string{"env", "environment"} {
			m := table.find(name)
			if m == nil {
				continue
			}
			if m.value.kind != object {
				return nil, "its variables are not a table"
			}
			for _, v := range m.value.members {
				if strings.Contains(v.value.value, "${") || v.value.kind != text && v.value.kind != other {
					return nil, "its variable " + v.name + " has another one as its value"
				}
				env[v.name] = v.value.value
				before := string(content[v.value.start:v.value.end])
				edits = append(edits, Edit{Path: append(slices.Clone(paths[i]), name, v.name), Before: before, After: `""`})
			}
		}
	}
	return edits, ""
}

// thin returns the edits that make a client start a server by wrap --socket.
func (c Client) thin(content []byte, root *node, e entry, o IsolateOptions, name string) ([]Edit, error) {
	program := c.language.quote(o.Program)
	var args []string
	for _, a := range []string{"wrap", "--socket", o.Socket, "--name", name} {
		args = append(args, c.language.quote(a))
	}
	command, err := root.at(e.command)
	if err != nil {
		return nil, err
	}
	original := string(content[command.value.start:command.value.end])
	if e.args == nil {
		return []Edit{{Path: e.command, Before: original, After: "[" + strings.Join(append([]string{program}, args...), ", ") + "]"}}, nil
	}
	given, err := root.at(e.args)
	if err != nil {
		return nil, err
	}
	list := "[" + strings.Join(args, ", ") + "]"
	if given != nil {
		return []Edit{{Path: e.command, Before: original, After: program}, {Path: e.args, Before: given.value.in(content), After: list}}, nil
	}
	named := string(content[command.key:command.value.start])
	added := command.prefix + c.language.name("args") + list + command.gap
	return []Edit{{Path: e.command, Before: named + original, After: added + named + program}}, nil
}

// Restore returns content with patches undone. It leaves servers that were changed since, and
// returns their names.
func (c Client) Restore(content []byte, patches []Patch) (text []byte, kept []string, err error) {
	root, err := parse(c.language, content)
	if err != nil {
		return nil, nil, err
	}
	var back []Edit
	for _, p := range patches {
		if p.intact(content, root) {
			back = append(back, p.reversed()...)
		} else {
			kept = append(kept, p.Server[len(p.Server)-1])
		}
	}
	text, err = apply(content, root, back)
	return text, kept, err
}

// Replace writes a file atomically. It keeps the owner of a file that exists.
func Replace(name string, content []byte, mode os.FileMode) error {
	return Files{}.replace(name, content, mode)
}

// ReadWritable returns the content and the permissions of a file that this process may change.
func ReadWritable(name string) ([]byte, os.FileMode, error) { return read(name) }
