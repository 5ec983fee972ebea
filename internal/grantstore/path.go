package grantstore

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// maxPath is the most bytes of a path in a grant.
const maxPath = 4096

// Below reports whether path is below directory, however a server reads it. Both must be absolute
// and plain; see [plainName]. Below the directory, the path has no spaces: a shell may read what
// follows them as another path, or as an option. The gate does not see the files of a server, so it
// cannot know where a symbolic link leads. The directory itself is not below it.
func Below(directory, path string) bool {
	rest, inside := strings.CutPrefix(path, directory+"/")
	//mutate:swap ` || strings.Contains(rest, " ")` "" TestPathScope a path after a space is covered
	if !inside || rest == "" || strings.Contains(rest, " ") {
		return false
	}
	return IsPlainPath(directory) && IsPlainPath(path)
}

// IsPlainPath reports whether path is absolute, is not the root, and has only plain names.
func IsPlainPath(path string) bool {
	rest, absolute := strings.CutPrefix(path, "/")
	if !absolute || len(path) > maxPath {
		return false
	}
	for name := range strings.SplitSeq(rest, "/") {
		if !plainName(name) {
			return false
		}
	}
	return true
}

// plainName reports whether all programs read a name in a path as the same file of a directory. It
// allows letters, digits, spaces between them and a few marks. All else may have a meaning for a
// server or for the shell that it starts: "..", an empty name, a backslash, a percent sign, a
// variable, a pattern, a separator of lists, and characters that Unicode normalizes to those.
// Windows ignores dots and spaces at the end. Some programs drop letters outside of ASCII, and some
// file systems ignore invisible ones, so none of these may hide "..".
func plainName(name string) bool {
	if name == "" || strings.HasPrefix(name, " ") || strings.HasSuffix(name, " ") || strings.HasSuffix(name, ".") {
		return false
	}
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune(" .-_=@~", r) {
			return false
		}
	}
	//mutate:swap "!hidesParent(name) && " "" TestPathScope a name that some programs read as the parent directory is covered
	return !hidesParent(name) && norm.NFKC.IsNormalString(name)
}

// hidesParent reports whether a name has dots, and no other ASCII characters than spaces.
func hidesParent(name string) bool {
	return strings.Count(name, ".") > 1 && !strings.ContainsFunc(name, func(r rune) bool { return r < unicode.MaxASCII && r != '.' && r != ' ' })
}

// Directories returns the directories that path is [Below], the closest one first.
func Directories(path string) []string {
	var all []string
	for directory := path; ; {
		at := strings.LastIndexByte(directory, '/')
		if at <= 0 {
			return all
		}
		if directory = directory[:at]; !Below(directory, path) {
			return all
		}
		all = append(all, directory)
	}
}
