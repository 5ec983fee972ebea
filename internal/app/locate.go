package app

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// locateErrors returns what is wrong with a policy, each with its place.
func locateErrors(cfg config.Config, err error) error {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	problems := make([]config.Problem, len(all))
	for i, e := range all {
		problems[i] = locate(cfg, strings.ReplaceAll(e.Error(), "\n", "; "))
	}
	return config.NewError(problems)
}

// locateWarnings returns warnings whose places are in files.
func locateWarnings(cfg config.Config, warnings []policy.Warning) []policy.Warning {
	located := make([]policy.Warning, len(warnings))
	for i, w := range warnings {
		p := locate(cfg, w.String())
		where := p.At.String()
		if p.Setting != "" {
			where += ": " + p.Setting
		}
		located[i] = policy.Warning{Where: where, Text: p.Text}
	}
	return located
}

// locate finds the place of a complaint of package policy, which begins with a
// setting or with the name of a Cedar file.
func locate(cfg config.Config, complaint string) config.Problem {
	for _, s := range cfg.Cedar.Sources {
		if rest, ok := strings.CutPrefix(complaint, s.Name+":"); ok {
			return locateCedar(s, rest)
		}
	}
	setting, text, found := strings.Cut(complaint, ": ")
	if !found {
		return config.Problem{At: cfg.Origins.Of(""), Text: complaint}
	}
	at := cfg.Origins.Of(setting)
	for _, key := range []string{"match", "action", "workflow", "kind", "upstream", "principals"} {
		if inner, ok := strings.CutPrefix(text, key+": "); ok {
			setting += "." + key
			return config.Problem{At: cfg.Origins.Of(setting), Setting: setting, Text: inner}
		}
		if strings.HasPrefix(text, key+" ") {
			at = cfg.Origins.Of(setting + "." + key)
		}
	}
	return config.Problem{At: at, Setting: setting, Text: text}
}

// placeInText is how the parser of Cedar tells a place in a text whose name it
// does not know.
var placeInText = regexp.MustCompile(`^(?:parse error at )?<input>:(\d+):(\d+):? (.*)$`)

// locateCedar finds the place in a Cedar file of a complaint that goes on
// after the file's name with " TEXT" or "LINE: TEXT".
func locateCedar(file config.Source, complaint string) config.Problem {
	p := config.Problem{At: config.Position{Source: file.Name}, Text: strings.TrimPrefix(complaint, " ")}
	if line, text, ok := strings.Cut(complaint, ": "); ok {
		if n, err := strconv.Atoi(line); err == nil {
			p.At.Line, p.Text = n, text
			return p
		}
	}
	text, syntax := strings.CutPrefix(p.Text, "parser error: ")
	if !syntax {
		return p
	}
	if m := placeInText.FindStringSubmatch(text); m != nil {
		p.At.Line, _ = strconv.Atoi(m[1])
		p.At.Column, _ = strconv.Atoi(m[2])
		text = m[3]
	}
	return explainCedar(p, string(file.Text), text)
}

// How the parser of Cedar reports a wrong token, behind the place of the token
// after it, and a number that is too large, without a place.
var (
	wrongToken  = regexp.MustCompile(`^".*": exact got (.+) want (.+)$`)
	largeNumber = regexp.MustCompile(`^strconv\.ParseInt: parsing "(\d+)": value out of range$`)
)

// explainCedar puts the parser's complaint about a file in plain words, and points
// at the token that is wrong.
func explainCedar(p config.Problem, file, complaint string) config.Problem {
	if m := wrongToken.FindStringSubmatch(complaint); m != nil {
		p.Text = fmt.Sprintf("not Cedar: expected %q before %q", m[2], m[1])
		if at := strings.LastIndex(file[:offset(file, p.At)], m[1]); at >= 0 {
			p.At = position(p.At.Source, file, at)
		}
		return p
	}
	if m := largeNumber.FindStringSubmatch(complaint); m != nil {
		p.Text = "not Cedar: the number " + m[1] + " does not fit into 64 bits"
		if at := strings.Index(file, m[1]); at >= 0 {
			p.At = position(p.At.Source, file, at)
		}
		return p
	}
	p.Text = "not Cedar: " + complaint
	return p
}

// offset returns the index in file of a place, which counts characters from 1.
func offset(file string, at config.Position) int {
	start := 0
	for range at.Line - 1 {
		start += strings.IndexByte(file[start:], '\n') + 1
	}
	column := 1
	for i := range file[start:] {
		if column == at.Column {
			return start + i
		}
		column++
	}
	return len(file)
}

// position returns the place of an index in file.
func position(name, file string, at int) config.Position {
	before := file[:at]
	line := before[strings.LastIndexByte(before, '\n')+1:]
	return config.Position{Source: name, Line: strings.Count(before, "\n") + 1, Column: utf8.RuneCountInString(line) + 1}
}
