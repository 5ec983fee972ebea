// Command sbom writes a software bill of materials, in the format CycloneDX, of a
// program that was built with Go. It reads the list of modules that the Go
// toolchain puts into every program, so the list is that of the program itself.
//
//	sbom PROGRAM VERSION FILE
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"io"
	"log"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.New(os.Stderr, "sbom: ", 0).Fatal(err)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: sbom PROGRAM VERSION FILE")
	}
	info, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return err
	}
	sum, err := digest(args[0])
	if err != nil {
		return err
	}
	text, err := json.Marshal(describe(component{Name: filepath.Base(args[0]), Version: args[1], Hashes: []hash{{"SHA-256", sum}}}, info), jsontext.Multiline(true))
	if err != nil {
		return err
	}
	return os.WriteFile(args[2], append(text, '\n'), 0o644) // it is published
}

func digest(name string) (sum string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, f.Close())
}

// A bom is a bill of materials as CycloneDX 1.6 defines it.
type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref,omitempty"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

func describe(program component, info *debug.BuildInfo) bom {
	program.Type = "application"
	b := bom{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{program}}
	toolchain := component{Type: "library", Name: "stdlib", Version: info.GoVersion, PURL: "pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go")}
	toolchain.Ref = toolchain.PURL
	b.Components = append(b.Components, toolchain)
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		purl := "pkg:golang/" + m.Path + "@" + m.Version
		b.Components = append(b.Components, component{Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl})
	}
	return b
}
