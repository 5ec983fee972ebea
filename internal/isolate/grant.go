package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Grant is a file or directory of the person that the servers may use. The unit shows it to the
// service (ProtectHome hides the rest), and access control lists permit its use: neither suffices
// alone. They leave the owner and the mode as they are, and cover files that are made later.
type Grant struct {
	Path      string `json:"path"` // absolute, without links
	Write     bool   `json:"write,omitzero"`
	Directory bool   `json:"directory,omitzero"`
}

// parseGrants returns the grants of o.
func parseGrants(o Options) (grants []Grant, err error) {
	return grants, o.asPerson(func() error {
		for _, text := range o.Grants {
			g, err := parseGrant(o, text)
			if err != nil {
				return fmt.Errorf("--grant %s: %w", text, err)
			}
			grants = append(grants, g)
		}
		return nil
	})
}

func parseGrant(o Options, text string) (g Grant, err error) {
	g.Path, g.Write = strings.CutSuffix(text, ":rw")
	if !filepath.IsAbs(g.Path) || strings.ContainsAny(g.Path, "\"\\:%\n\r\t") {
		return g, errors.New("must be an absolute path without colons, quotes, percent signs and line breaks, or the same with :rw")
	}
	if o.Root == "" {
		if g.Path, err = filepath.EvalSymlinks(g.Path); err != nil {
			return g, err
		}
	}
	about, err := os.Stat(o.at(g.Path))
	if err != nil {
		return g, err
	}
	g.Directory = about.IsDir()
	if rest, err := filepath.Rel(g.Path, o.Person.Home); err == nil && rest != ".." && !strings.HasPrefix(rest, "../") {
		return g, errors.New("contains the whole home directory; name what the servers need")
	}
	return g, nil
}

func (g Grant) verb() string {
	if g.Write {
		return "change"
	}
	return "read"
}

// bind returns the line of the unit that shows the path to the service.
func (g Grant) bind() string {
	setting := "BindReadOnlyPaths"
	if g.Write {
		setting = "BindPaths"
	}
	return fmt.Sprintf(`%s="%s"`, setting, g.Path)
}

// commands returns the commands that permit the use of the path. They run as the person, who can
// permit only what is theirs.
func (g Grant) commands(person, user string) [][]string {
	mode := ":rX"
	if g.Write {
		mode = ":rwX"
	}
	entries := "u:" + user + mode
	if g.Directory { // also for files that are made later, by the person or by a server
		entries += ",d:" + entries + ",d:u:" + person + ":rwX"
	}
	return [][]string{append(setfacl(g), "-m", entries, "--", g.Path)}
}

// revocation returns the commands that undo commands.
func (g Grant) revocation(person, user string) [][]string {
	entries := "u:" + user
	if g.Directory {
		entries += ",d:" + entries + ",d:u:" + person
	}
	return [][]string{append(setfacl(g), "-x", entries, "--", g.Path)}
}

// disown returns the commands that give the person the files that servers have made.
func (g Grant) disown(person, user string) [][]string {
	return [][]string{{"chown", "-R", "-P", "-h", "--from=" + user, "--", person + ":", g.Path}}
}

// setfacl follows no links.
func setfacl(g Grant) []string {
	if g.Directory {
		return []string{"setfacl", "-R", "-P"}
	}
	return []string{"setfacl", "-P"}
}
