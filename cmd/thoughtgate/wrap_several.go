package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// A severalFlags has the flags for several servers in place of one.
type severalFlags struct {
	servers  []string
	endpoint string
}

func (s *severalFlags) add(flags *pflag.FlagSet) {
	flags.StringArrayVar(&s.servers, "server", nil, "`NAME=SERVER`, in place of COMMAND, with a command line or URL as SERVER; repeat for several servers as one")
	flags.StringVar(&s.endpoint, "endpoint", "", "`path` of an endpoint of --config, whose servers are used in place of COMMAND")
}

// given reports whether there are such flags.
func (s *severalFlags) given() bool { return len(s.servers) > 0 || s.endpoint != "" }

// check returns an error if the flags contradict each other or others.
func (s *severalFlags) check(at remote, command []string, name, file string) error {
	switch {
	case len(command) > 0 || name != "" || at.url != "" || at.hasFlags():
		return errors.New("--server and --endpoint take neither a COMMAND nor --name nor flags of --url; for headers, use --config with --endpoint")
	case len(s.servers) > 0 && s.endpoint != "":
		return errors.New("give either --server or --endpoint")
	case s.endpoint != "" && file == "":
		return errors.New("--endpoint needs --config")
	default:
		return nil
	}
}

// upstreams returns the servers of --server.
func (s *severalFlags) upstreams() (all []config.Upstream, err error) {
	for _, text := range s.servers {
		name, at, ok := strings.Cut(text, "=")
		if !ok || !config.IsName(name) {
			return nil, fmt.Errorf("--server %q must be NAME=SERVER; a name has at most 63 lower-case letters, digits and hyphens", text)
		}
		if slices.ContainsFunc(all, func(u config.Upstream) bool { return u.Name == name }) {
			return nil, fmt.Errorf("--server: two servers have the name %s", name)
		}
		u, err := serverAt(at)
		if err != nil {
			return nil, fmt.Errorf("--server %s: %w", name, err)
		}
		// Programs often answer clients of both eras.
		u.Name, u.Translate = name, u.URL != nil
		all = append(all, u)
	}
	return all, nil
}

// serverAt returns the server with a command line or a URL.
func serverAt(text string) (config.Upstream, error) {
	if strings.HasPrefix(text, fromEnvironment) || strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://") {
		at := remote{url: text}
		err := at.read()
		return at.server, err
	}
	u := config.DefaultUpstream()
	var err error
	u.Command, err = splitWords(text)
	return u, err
}

var (
	oneWord = regexp.MustCompile(`(?:[^\s'"]|'[^']*'|"[^"]*")+`)
	inQuote = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)
)

// splitWords splits a command line at white space that is not in quotes. A backslash is an ordinary
// character, as in paths of Windows.
func splitWords(line string) (words []string, err error) {
	if strings.TrimSpace(oneWord.ReplaceAllString(line, "")) != "" {
		return nil, errors.New("a quotation mark is not closed")
	}
	for _, word := range oneWord.FindAllString(line, -1) {
		words = append(words, inQuote.ReplaceAllString(word, "$1$2"))
	}
	if len(words) == 0 || words[0] == "" {
		return nil, errors.New("the command line is empty")
	}
	return words, nil
}

// setSeveral sets the servers to wrap, if s has several.
func (w *wrapping) setSeveral(s severalFlags) (err error) {
	if !s.given() {
		return nil
	}
	w.several, w.endpoint = &config.Several{}, s.endpoint
	if len(s.servers) == 0 {
		return nil
	}
	w.endpoint = config.WrappedPath
	w.several.Servers, err = s.upstreams()
	return err
}

// checkEndpoint returns an error if the configuration has no servers at the endpoint.
func (w *wrapping) checkEndpoint(cfg config.Config, file string) error {
	if w.several == nil || cfg.HasPath(w.endpoint) {
		return nil
	}
	return fmt.Errorf("%s has no endpoint with the path %s", oneLine(file, maxCell), w.endpoint)
}

// workingDir returns the current directory, or nothing if it is not known.
func workingDir() string {
	dir, _ := os.Getwd()
	return dir
}
