package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/mcpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/internal/version"
)

func newCall() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "call TOOL [KEY=VALUE]...",
		Short: "Call a tool, or list the tools of a server",
		Long: "Call a tool of an MCP server over HTTP, through a gate or directly, and print its result. Without TOOL, list the tools.\n\n" +
			"KEY=VALUE is an argument with a text, KEY:=VALUE one with JSON. If a gate holds the call, the command waits and says\n" +
			"where to approve it; Ctrl-C withdraws the call. It uses the sign-in of thoughtgate login.\n\n" +
			"The exit status is 1 if the call was denied or rejected, or if the tool reports an error.",
		Example: "  thoughtgate call read_file path=/notes/todo.txt\n  thoughtgate call slow_report seconds:=3 --server http://127.0.0.1:9000/mcp",
	}
	t := target{stderr: cmd.ErrOrStderr}
	t.flags(cmd)
	arguments := cmd.Flags().String("arguments", "", "all arguments as a `JSON` object, @FILE with one, or - for standard input")
	cmd.Flags().Bool("json", false, "print the whole result as JSON")
	cmd.ValidArgsFunction = t.complete
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return t.use(cmd.Context(), func(c *mcpclient.Client) error { return listTools(cmd, c) })
		}
		given, err := callArguments(args[1:], *arguments, cmd.InOrStdin())
		if err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		return t.use(cmd.Context(), func(c *mcpclient.Client) error {
			result, err := c.Call(cmd.Context(), args[0], given)
			if err != nil {
				return err
			}
			return printResult(cmd, result)
		})
	}
	return cmd
}

// A target is the server of a call.
type target struct {
	at     remote
	stderr func() io.Writer
}

func (t *target) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&t.at.url, "server", "http://"+config.Default().Listen+"/mcp", "`URL` of the gate or server")
	flags.StringArrayVar(&t.at.headers, "header", nil, "`header` for the server, as 'NAME: VALUE'; ${VARIABLE} or env:VARIABLE keeps a secret off the command line; may be repeated")
	flags.StringVar(&t.at.tokenFile, "token-file", "", "`file` with the bearer token for the server")
}

// use connects to the server and calls f.
func (t *target) use(ctx context.Context, f func(*mcpclient.Client) error) error {
	if err := t.at.read(); err != nil {
		return err
	}
	w := wrapping{stderr: t.stderr()}
	if err := w.setServer(t.at, nil); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(w.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	cfg := mcpclient.Config{
		Name: w.name, URL: w.server.URL, Headers: make(http.Header), Token: w.token, Version: version.This().Version,
		Progress: (&progress{w: w.stderr}).show, Log: log,
	}
	for name, value := range w.server.Headers {
		cfg.Headers.Set(name, value.Reveal())
	}
	stored, err := deskConfig("")
	if err != nil {
		return err
	}
	if tokens := w.newTokens(stored, log, w.server); tokens != nil {
		defer tokens.Close()
		cfg.Tokens = tokens
	}
	c, err := mcpclient.Connect(ctx, cfg)
	if err != nil {
		if hint := w.server.OldTransport(); hint != "" {
			err = fmt.Errorf("%w; the URL %s", err, hint)
		}
		return callError(w.server.URL.String(), err)
	}
	defer c.Close()
	return callError(w.server.URL.String(), f(c))
}

// callError returns an error of a server as one line.
func callError(server string, err error) error {
	switch {
	case err == nil || errors.Is(err, errReported):
		return err
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted: a call that was held is withdrawn")
	default:
		return fmt.Errorf("%s: %s", server, oneLine(err.Error(), maxText))
	}
}

// complete offers the tools of the server.
func (t *target) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return offer(nil)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	var all []mcpclient.Tool
	t.stderr = func() io.Writer { return io.Discard }
	_ = t.use(ctx, func(c *mcpclient.Client) (err error) { // an error leaves nothing to offer
		all, err = c.Tools(ctx)
		return err
	})
	return offer(namesOf(all, func(t mcpclient.Tool) string { return t.Name }))
}

// callArguments returns the arguments of a call as JSON, from words or from --arguments.
func callArguments(words []string, whole string, stdin io.Reader) (jsontext.Value, error) {
	if whole != "" && len(words) > 0 {
		return nil, errors.New("give arguments either as KEY=VALUE or with --arguments")
	}
	if whole != "" {
		return readArguments(whole, stdin)
	}
	arguments := map[string]jsontext.Value{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" || key == ":" {
			return nil, fmt.Errorf("%q is not an argument: write KEY=VALUE, or KEY:=VALUE with JSON", word)
		}
		text, err := jsontext.AppendQuote(nil, value)
		if name, isJSON := strings.CutSuffix(key, ":"); isJSON {
			key, text = name, []byte(value)
			if !jsontext.Value(text).IsValid() {
				return nil, fmt.Errorf("the value of %s is not JSON: for a text, write %s=VALUE", key, key)
			}
		}
		if _, twice := arguments[key]; err != nil || twice {
			return nil, cmp.Or(err, fmt.Errorf("the argument %s is given twice", key))
		}
		arguments[key] = text
	}
	return json.Marshal(arguments, json.Deterministic(true))
}

// readArguments returns the arguments in --arguments.
func readArguments(text string, stdin io.Reader) (arguments jsontext.Value, err error) {
	arguments = jsontext.Value(text)
	if file, ok := strings.CutPrefix(text, "@"); ok {
		arguments, err = os.ReadFile(file)
	} else if text == "-" {
		arguments, err = io.ReadAll(stdin)
	}
	if err == nil && (!arguments.IsValid() || arguments.Kind() != '{') {
		err = errors.New("--arguments must be a JSON object without duplicate names, @FILE or -")
	}
	return arguments, err
}

// listTools prints the names of the tools, and the first lines of their descriptions.
func listTools(cmd *cobra.Command, c *mcpclient.Client) error {
	all, err := c.Tools(cmd.Context())
	if err != nil {
		return err
	}
	t := newTable("TOOL", "DESCRIPTION")
	for _, tool := range all {
		first, _, _ := strings.Cut(tool.Description, "\n")
		t.add(markedName(tool.Name, maxCell), oneLine(first, maxCell))
	}
	return newScreen(cmd.OutOrStdout()).print(t.text())
}

// printResult prints the result of a tool: its content, or all of it as JSON. An error of the tool
// goes to standard error.
func printResult(cmd *cobra.Command, r mcpclient.Result) error {
	out, text := cmd.OutOrStdout(), r.Text+"\n"
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		if err := r.JSON.Indent(jsontext.WithIndent("  ")); err != nil {
			return err
		}
		text = string(r.JSON) + "\n"
	} else if r.Failed {
		out = cmd.ErrOrStderr()
	}
	if isTerminal(out) {
		text = safetext.Escape(text) // a server must not control the terminal
	}
	if _, err := io.WriteString(out, text); err != nil || !r.Failed {
		return err
	}
	return errReported
}

// A progress prints the progress of a call.
type progress struct {
	w    io.Writer
	last string
}

// timeLeft matches the part of a message that changes while a call waits.
var timeLeft = regexp.MustCompile(`[0-9hms]+ left`)

// show prints a message unless only the time left has changed.
func (p *progress) show(message string) {
	line := oneLine(message, maxCell)
	if same := timeLeft.ReplaceAllString(line, ""); same != p.last {
		p.last = same
		_, _ = fmt.Fprintln(p.w, line)
	}
}
