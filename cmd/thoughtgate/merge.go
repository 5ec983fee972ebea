package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/clientconfig"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// mergeConfig is the configuration of merged servers, without the servers. Its policy is wrap.cedar.
//
//go:embed merge.yaml
var mergeConfig string

// The lines of mergeConfig before which servers are added.
const (
	serversEnd = "  # init --merge adds servers above this line\n"
	namesEnd   = "      # init --merge adds names above this line\n"
)

// A merging is a merge of a client's servers, with the gate's configuration before it.
type merging struct {
	config, policy string
	before         string // the text of the configuration; empty if there is none yet
	options        clientconfig.MergeOptions
}

// newMerging finds out which configuration has the servers of a file.
func (f initFlags) newMerging(c clientconfig.Client, file string, how clientconfig.WrapOptions) (m merging, err error) {
	files, err := changedFiles()
	if err != nil {
		return m, err
	}
	known, err := files.Known(c, file)
	if err != nil {
		return m, err
	}
	if m.config, err = filepath.Abs(cmp.Or(f.config, starterFile)); err != nil {
		return m, err
	}
	m.policy = strings.TrimSuffix(m.config, filepath.Ext(m.config)) + ".cedar"
	how.Config = m.config
	m.options = clientconfig.MergeOptions{WrapOptions: how, Endpoint: config.WrappedPath}
	if known == nil {
		for _, name := range []string{m.config, m.policy} {
			if _, err := os.Lstat(name); err == nil {
				return m, fmt.Errorf("%s already exists: choose another file with --config", name)
			}
		}
		return m, nil
	}
	if f.config != "" && m.config != known.Config {
		return m, fmt.Errorf("the servers of %s are in %s already", file, known.Config)
	}
	m.config, m.options = known.Config, m.options.Extend(known)
	m.options.Config = known.Config
	text, err := os.ReadFile(m.config)
	m.before = string(text)
	return m, err
}

// unchanged returns an error if another process has changed the gate's configuration meanwhile.
func (m merging) unchanged() error {
	text, err := os.ReadFile(m.config)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err == nil && string(text) != m.before {
		err = fmt.Errorf("%s has just changed: run the command again", m.config)
	}
	return err
}

// files returns the contents of the gate's files with the added servers, by path.
func (m merging) files(added []clientconfig.MergedServer) (map[string][]byte, error) {
	files := map[string][]byte{}
	text := m.before
	if text == "" {
		if strings.ContainsAny(filepath.Base(m.config), `*?[]\"`) || m.policy == m.config {
			return nil, fmt.Errorf("%s: choose a name such as thoughtgate.yaml", m.config)
		}
		text = strings.Replace(mergeConfig, starterPolicyFile, quoted(filepath.Base(m.policy)), 1)
		files[m.policy] = wrapPolicy
	}
	if strings.Count(text, serversEnd) != 1 || strings.Count(text, namesEnd) != 1 {
		return nil, fmt.Errorf("%s has no longer the lines before which servers are added, with the text %q", m.config, strings.TrimSpace(serversEnd))
	}
	var servers, names strings.Builder
	for _, s := range added {
		server := "  - " + upstreamOf(s) + "\n"
		if strings.Contains(text, server) {
			continue // by a merge that was killed before it changed the client's file
		}
		servers.WriteString(server)
		names.WriteString("      - " + flow([][2]string{{"upstream", quoted(s.Name)}, {"include", flowList(s.Include)}, {"exclude", flowList(s.Exclude)}}) + "\n")
	}
	text = strings.Replace(text, serversEnd, servers.String()+serversEnd, 1)
	files[m.config] = []byte(strings.Replace(text, namesEnd, names.String()+namesEnd, 1))
	return files, nil
}

// upstreamOf returns a server as an upstream in YAML.
func upstreamOf(s clientconfig.MergedServer) string {
	dir, url := "", ""
	if s.Dir != "" {
		dir = quoted(s.Dir)
	}
	if s.URL != "" {
		url = quoted(s.URL)
	}
	return flow([][2]string{
		{"name", quoted(s.Name)}, {"command", flowList(s.Command)}, {"dir", dir}, {"env", flowTable(s.Env)}, {"url", url}, {"headers", flowTable(s.Headers)},
	})
}

// flow returns a YAML mapping in one line, without empty values.
func flow(members [][2]string) string {
	var all []string
	for _, m := range members {
		if m[1] != "" {
			all = append(all, m[0]+": "+m[1])
		}
	}
	return "{ " + strings.Join(all, ", ") + " }"
}

func flowTable(pairs []clientconfig.Pair) string {
	if len(pairs) == 0 {
		return ""
	}
	var all [][2]string
	for _, p := range pairs {
		all = append(all, [2]string{quoted(p.Name), quoted(p.Value)})
	}
	return flow(all)
}

func flowList(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	var all []string
	for _, text := range texts {
		all = append(all, quoted(text))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// quoted returns a text in quotes, for YAML.
func quoted(text string) string {
	q, _ := jsontext.AppendQuote(nil, text) // clients' files are UTF-8
	return string(q)
}

// merge shows or makes the change that merges the servers of a client.
func (f initFlags) merge(cmd *cobra.Command, c clientconfig.Client) error {
	plain := f
	plain.config = ""
	how, err := plain.wrapping()
	if err != nil {
		return err
	}
	file, err := f.locate(c)
	if err != nil {
		return err
	}
	m, err := f.newMerging(c, file, how)
	if err != nil {
		return err
	}
	how.Config = m.config
	if f.write {
		return f.applyMerge(cmd, c, file, m)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	merged, err := c.Merge(content, m.options)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	report(cmd.ErrOrStderr(), file, clientconfig.Change{Servers: merged.Servers}, "will be merged")
	f.reportOthers(cmd.ErrOrStderr(), c, file, how)
	if len(merged.Added) == 0 {
		return nil
	}
	files, err := m.files(merged.Added)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	err = errors.Join(showDiff(out, file, content, merged.Text), showDiff(out, m.config, []byte(m.before), files[m.config]))
	if err != nil || f.dryRun {
		return err
	}
	_, err = fmt.Fprintln(cmd.ErrOrStderr(), nothingWritten)
	return err
}

// applyMerge makes the change.
func (f initFlags) applyMerge(cmd *cobra.Command, c clientconfig.Client, file string, m merging) error {
	files, err := changedFiles()
	if err != nil {
		return err
	}
	unchanged := sync.OnceValue(m.unchanged) // a second attempt finds what the first has written
	merged, err := files.Merge(c, file, m.options, func(added []clientconfig.MergedServer) (map[string][]byte, error) {
		if err := unchanged(); err != nil {
			return nil, err
		}
		return m.files(added)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	w := cmd.ErrOrStderr()
	report(w, file, clientconfig.Change{Servers: merged.Servers}, "is merged now")
	how := m.options.WrapOptions
	f.reportOthers(w, c, file, how)
	if len(merged.Added) == 0 {
		return nil
	}
	_, err = fmt.Fprintf(w, "The servers are in %s. Restart %s. To restore the files: thoughtgate init --undo --for %[2]s\n", m.config, c.Name)
	return err
}
