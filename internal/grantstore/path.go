package grantstore

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// maxPath is the most bytes of a path in a grant.
const maxPath = 4096

// Below reports whether path is below directory, however a server reads it. Both must be absolute
// and plain; see [plainName]. The gate does not see the files of a server, so it cannot know where
// a symbolic link leads. The directory itself is not below it.
func Below(directory, path string) bool {
	rest, inside := strings.CutPrefix(path, directory+"/")
	return inside && rest != "" && IsPlainPath(directory) && IsPlainPath(path)
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
// Windows ignores dots and spaces at the end.
func plainName(name string) bool {
	if name == "" || strings.HasPrefix(name, " ") || strings.HasSuffix(name, " ") || strings.HasSuffix(name, ".") {
		return false
	}
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune(" .-_=@~", r) {
			return false
		}
	}
	return norm.NFKC.IsNormalString(name)
}

// Directories returns the directories above a path, the closest one first, or nil if the path is
// not plain.
func Directories(path string) []string {
	if !IsPlainPath(path) {
		return nil
	}
	var all []string
	for {
		at := strings.LastIndexByte(path, '/')
		if at <= 0 {
			return all
		}
		path = path[:at]
		all = append(all, path)
	}
}
