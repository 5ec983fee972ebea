package config

import (
	"path/filepath"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/toolpin"
)

// Pins has the definitions of tools that the gate's users have accepted.
type Pins struct {
	File     string           // of command pin; empty means none
	Unpinned policy.Deviation // what happens to calls of tools that are not as the file has them
	Tools    toolpin.File     // the content of the file
}

func (p *Pins) settings() Group {
	return Group{
		{"file", Text(&p.File)},
		{"unpinned", OneOf(&p.Unpinned, "hold", "deny", "warn")},
	}
}

// checkPins warns of a setting that has no effect.
func (l *loader) checkPins() {
	if l.cfg.Pins.File == "" && l.given("pins.unpinned") {
		l.warn("pins.unpinned", "has no effect without pins.file")
	}
}

// findPins makes the name of the lock file absolute. Relative names are below dir.
func (l *loader) findPins(dir string) {
	if p := &l.cfg.Pins; p.File != "" && !filepath.IsAbs(p.File) {
		p.File = filepath.Join(dir, p.File)
	}
}

// readPins reads the lock file.
func (l *loader) readPins() {
	p := &l.cfg.Pins
	if p.File == "" {
		return
	}
	text, err := l.files.readLarge(p.File, toolpin.MaxFile)
	if err != nil {
		l.reject("pins.file", p.File+" cannot be read; thoughtgate pin writes it")
		return
	}
	if p.Tools, err = toolpin.Read(text); err != nil {
		l.reject("pins.file", p.File+" "+err.Error())
	}
}
