package clientconfig

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// checkWrapping finds out whether a server is wrapped. It refuses a server that seems to be wrapped
// but starts another program, or whose environment changes what the gate does: the file may come
// with a project.
func (e *entry) checkWrapping(n *node, w WrapOptions) error {
	if e.Status != Wrapped {
		return nil
	}
	if err := e.checkEnvironment(n); err != nil {
		return err
	}
	if !e.isWrappedBy(w.isGate) {
		if e.isWrappedBy(LooksLikeGate) {
			e.Warning = "it is started by " + e.argv[0].value + ", which is not this program"
		}
		if e.ownPath && !filepath.IsAbs(e.program(w)) {
			return errors.New("it sets PATH, so " + w.Command + " may be another program: give the full path with --command")
		}
		return nil
	}
	//mutate:false TestFileCannotDisableGate a PATH in a file chooses the program that is the gate
	if e.ownPath && !filepath.IsAbs(e.argv[0].value) {
		return errors.New("it sets PATH, so " + e.argv[0].value + " may be another program: give the full path in its command")
	}
	e.Status = Unchanged
	if config := configOf(e.argv[2:]); config != "" && config != w.Config {
		e.Warning = "its gate uses another configuration: " + config
	}
	return nil
}

// checkEnvironment refuses a server whose environment changes what the gate does.
func (e *entry) checkEnvironment(n *node) error {
	for _, name := range variables(n) {
		//mutate:false TestFileCannotDisableGate a file changes what the gate does
		if changesGate(name) {
			return fmt.Errorf("it sets the environment variable %s, which changes what the gate does: remove it", name)
		}
		if name == "SSL_CERT_FILE" || name == "SSL_CERT_DIR" {
			e.Warning = "it sets " + name + ", so the gate also trusts these certificates, for example when it connects to Slack"
		}
		e.ownPath = e.ownPath || name == "PATH"
	}
	if n.find("envFile") != nil {
		e.Warning = "its environment variables come from a file: make sure that it sets neither THOUGHTGATE_ variables nor HOME"
	}
	return nil
}

// program returns the program for the client to start. Clients look for a program without a
// directory in the PATH of the server's entry and, on Windows, first in the directory of the
// server.
func (e *entry) program(w WrapOptions) string {
	if w.Path != "" && (e.ownPath || runtime.GOOS == "windows") {
		return w.Path
	}
	return w.Command
}

// variables returns the environment variables that an entry sets, in upper case, because Windows
// ignores case.
func variables(n *node) []string {
	var names []string
	nodes := []*node{n}
	if command := n.find("command"); command != nil {
		nodes = append(nodes, command.value)
	}
	for _, table := range nodes {
		for _, name := range []string{"env", "environment"} {
			m := table.find(name)
			if m == nil {
				continue
			}
			for _, v := range m.value.members {
				names = append(names, strings.ToUpper(v.name))
			}
			for _, v := range m.value.items {
				name, _, _ := strings.Cut(v.value, "=")
				names = append(names, strings.ToUpper(name))
			}
		}
	}
	return names
}

// changesGate reports whether an environment variable affects the gate and not only the server: its
// settings, its inbox, or the code that the system loads into it.
func changesGate(name string) bool {
	switch name {
	case "HOME", "XDG_STATE_HOME", "USERPROFILE", "LOCALAPPDATA":
		return true
	}
	isPrefix := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	return slices.ContainsFunc([]string{"THOUGHTGATE_", "LD_", "DYLD_"}, isPrefix)
}

// configOf returns the configuration file in the arguments of wrap, or nothing.
func configOf(args []*node) (file string) {
	for i, a := range args {
		flag, value, given := strings.Cut(a.value, "=")
		short, isShort := strings.CutPrefix(a.value, "-c")
		switch {
		case endsFlags(args, i):
			return file
		case flag == "--config" && given, flag == "-c" && given:
			file = value
		case (flag == "--config" || flag == "-c") && i+1 < len(args):
			file = args[i+1].value
		case isShort && short != "":
			file = short
		}
	}
	return file
}

// endsFlags reports whether the argument of wrap at index i is -- and is not the value of the flag
// before it.
func endsFlags(args []*node, i int) bool {
	if i == 0 || args[i].value != "--" {
		return args[i].value == "--"
	}
	flag := args[i-1].value
	long := strings.HasPrefix(flag, "--") && len(flag) > 2 && flag != "--restart" && !strings.Contains(flag, "=")
	short := len(flag) == 2 && flag[0] == '-' && flag != "--"
	//mutate:true TestFileCannotDisableGate a configuration is hidden behind the value of another flag
	return !long && !short
}
