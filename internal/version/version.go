// Package version describes the running build of the program.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// A release sets these with the linker: -X …/internal/version.number=1.2.3. Other
// builds use what the Go toolchain recorded: the module version after go install, the
// commit after go build in a clone.
var number, commit, date string

// A Build describes one build of the program.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the commit
	Modified bool   `json:"modified"`       // the working tree differed from the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// This returns the running build.
func This() Build {
	b := Build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		vcs := make(map[string]string)
		for _, s := range info.Settings {
			vcs[s.Key] = s.Value
		}
		b.Version, b.Modified = cmp.Or(info.Main.Version, b.Version), vcs["vcs.modified"] == "true"
		b.Revision, b.Time = vcs["vcs.revision"], vcs["vcs.time"]
	}
	b.Version, b.Revision, b.Time = cmp.Or(number, b.Version), cmp.Or(commit, b.Revision), cmp.Or(date, b.Time)
	return b
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
