// Command npm makes the npm packages of a release: one for each platform with its
// program, and the package thoughtgate, which depends on all of them as optional
// dependencies, so that npm installs the one that fits.
//
//	npm -version 1.2.3 -dist dist -out dist/npm
//
// The directory -dist has the programs as goreleaser builds them. With -some,
// platforms without a program are left out, for tests.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

//go:embed thoughtgate/bin/thoughtgate.js thoughtgate/README.md
var files embed.FS

// A platform has the names of Go and those of Node.
type platform struct{ goos, goarch, os, cpu string }

var platforms = []platform{
	{"linux", "amd64", "linux", "x64"},
	{"linux", "arm64", "linux", "arm64"},
	{"darwin", "amd64", "darwin", "x64"},
	{"darwin", "arm64", "darwin", "arm64"},
	{"windows", "amd64", "win32", "x64"},
	{"windows", "arm64", "win32", "arm64"},
}

func (p platform) name() string { return "@thoughtgate/" + p.os + "-" + p.cpu }

func (p platform) program() string {
	if p.goos == "windows" {
		return "thoughtgate.exe"
	}
	return "thoughtgate"
}

// A manifest is a package.json.
type manifest struct {
	Name        string            `json:"name"`
	Version     string            `json:"version"`
	Description string            `json:"description"`
	License     string            `json:"license"`
	Repository  repository        `json:"repository"`
	Bin         map[string]string `json:"bin,omitempty"`
	Files       []string          `json:"files"`
	OS          []string          `json:"os,omitempty"`
	CPU         []string          `json:"cpu,omitempty"`
	Optional    map[string]string `json:"optionalDependencies,omitempty"`
	Engines     map[string]string `json:"engines,omitempty"`
	Unplugged   bool              `json:"preferUnplugged,omitempty"` // the program must be a file
}

type repository struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

func newManifest(name, version, description string) manifest {
	return manifest{
		Name: name, Version: version, Description: description, License: "Apache-2.0", Files: []string{"bin"},
		Repository: repository{"git", "git+https://github.com/thoughtgate/thoughtgate-go.git"},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		log.New(os.Stderr, "npm: ", 0).Fatal(err)
	}
}

// A maker makes the packages of one version.
type maker struct {
	version, dist, out string
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("npm", flag.ContinueOnError)
	var m maker
	flags.StringVar(&m.version, "version", "", "version of the packages")
	flags.StringVar(&m.dist, "dist", "dist", "directory with the programs")
	flags.StringVar(&m.out, "out", "dist/npm", "directory for the packages")
	some := flags.Bool("some", false, "leave out platforms without a program")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := m.root(ctx); err != nil {
		return err
	}
	made := 0
	for _, p := range platforms {
		err := m.platform(ctx, p)
		if *some && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		made++
	}
	if made == 0 {
		return fmt.Errorf("there is no program in %s", m.dist)
	}
	return nil
}

// root makes the package thoughtgate.
func (m maker) root(ctx context.Context) error {
	about := newManifest("thoughtgate", m.version, "A gate between MCP clients and MCP servers that holds tool calls until a person approves")
	about.Bin = map[string]string{"thoughtgate": "bin/thoughtgate.js"}
	about.Engines = map[string]string{"node": ">=18"}
	about.Optional = map[string]string{}
	for _, p := range platforms {
		about.Optional[p.name()] = m.version
	}
	own, err := fs.Sub(files, "thoughtgate")
	if err != nil {
		return err
	}
	return m.pack(ctx, about, func(dir string) error { return os.CopyFS(dir, own) })
}

// platform makes the package with the program of one platform.
func (m maker) platform(ctx context.Context, p platform) error {
	found, err := filepath.Glob(filepath.Join(m.dist, "*_"+p.goos+"_"+p.goarch+"*", p.program()))
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("%w: one program for %s/%s in %s, but %d", fs.ErrNotExist, p.goos, p.goarch, m.dist, len(found))
	}
	about := newManifest(p.name(), m.version, "The program thoughtgate for "+p.os+" on "+p.cpu)
	about.OS, about.CPU, about.Unplugged = []string{p.os}, []string{p.cpu}, true
	return m.pack(ctx, about, func(dir string) error {
		program, err := os.ReadFile(found[0])
		if err != nil {
			return err
		}
		if err := os.Mkdir(filepath.Join(dir, "bin"), 0o750); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "bin", p.program()), program, 0o755) // everybody may run it
	})
}

// pack makes a package of what fill puts into a directory, with npm.
func (m maker) pack(ctx context.Context, about manifest, fill func(dir string) error) (err error) {
	dir, err := os.MkdirTemp("", "npm-package-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := fill(dir); err != nil {
		return err
	}
	text, err := json.Marshal(about, jsontext.Multiline(true), json.Deterministic(true))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), text, 0o600); err != nil {
		return err
	}
	out, err := filepath.Abs(m.out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o750); err != nil {
		return err
	}
	npm := exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", out)
	npm.Dir = dir
	if said, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm pack %s: %w\n%s", about.Name, err, said)
	}
	return nil
}
