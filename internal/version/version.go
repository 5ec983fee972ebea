// Package version says which build of the program runs. It does not know who asks.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// The linker sets these in a release: -X …/internal/version.number=1.2.3, and so
// on. A program without them says what the Go toolchain knows: the version of the
// module after go install, the commit after go build in a clone.
var number, commit, date string

// A Build says which program this is.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the commit
	Modified bool   `json:"modified"`       // the files differed from the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// This returns the build that runs.
func This() Build {
	b := Build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.read(info)
	}
	b.Version = cmp.Or(number, b.Version)
	b.Revision = cmp.Or(commit, b.Revision)
	b.Time = cmp.Or(date, b.Time)
	return b
}

// read takes what the Go toolchain has noted.
func (b *Build) read(info *debug.BuildInfo) {
	b.Version = cmp.Or(info.Main.Version, b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
}

// String returns the build on one line.
func (b Build) String() string {
	line := "thoughtgate " + b.Version
	if b.Revision != "" {
		line += " " + b.Revision
	}
	if b.Time != "" {
		line += " " + b.Time
	}
	if b.Modified {
		line += " (modified)"
	}
	return line + " " + b.Go + " " + b.Platform
}
