package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policytest"
)

// testSuffix is the end of the names of test files.
const testSuffix = "_test.yaml"

func newTest() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test [FILE]...",
		Short: "Test the rules and policies of a configuration",
		Long: "Run the tests of the rules and policies of a configuration: calls with their expected verdicts, in YAML.\n" +
			"Without arguments, the files are those next to the configuration whose names end with " + testSuffix + ".\n" +
			"Nothing is sent or stored. What only a running gate knows is not judged: changed definitions of tools,\n" +
			"standing approvals, limits, and the annotations of tools, unless the test file gives them.\n" +
			"The exit status is 1 if a test fails or a file is invalid, and 2 if the command line is wrong.",
		Example: "  thoughtgate test -c thoughtgate.yaml --junit report.xml --coverage",
	}
	o := testOptions{file: starterFlag(cmd)}
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "also list the tests that pass")
	cmd.Flags().StringVar(&o.junit, "junit", "", "also write the results to a `file`, in the XML format of JUnit")
	cmd.Flags().BoolVar(&o.coverage, "coverage", false, "list the rules and policies that no test reaches")
	cmd.Flags().IntVar(&o.least, "min-coverage", 0, "fail if the tests reach less than this `percentage` of the rules and policies")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		if o.least < 0 || o.least > 100 {
			return &usageError{cmd.CommandPath(), errors.New("--min-coverage must be from 0 to 100")}
		}
		*o.file = orStarter(*o.file)
		l, err := loadPolicy(cmd.ErrOrStderr(), config.Sources{File: *o.file})
		if err != nil {
			return err
		}
		if l.settings.Policy == nil {
			return errors.New("there is nothing to test: without rules, every call is forwarded")
		}
		if len(names) == 0 {
			if names, err = o.files(); err != nil {
				return err
			}
		}
		return o.run(cmd.OutOrStdout(), policytest.New(l.config, l.settings.Policy), names)
	}
	return cmd
}

type testOptions struct {
	file     *string // the configuration
	verbose  bool
	junit    string
	coverage bool
	least    int
}

// files returns the test files next to the configuration.
func (o *testOptions) files() ([]string, error) {
	file := *o.file
	if file == "" {
		file = os.Getenv("THOUGHTGATE_CONFIG")
	}
	dir := filepath.Dir(file)
	names, err := fs.Glob(os.DirFS(dir), "*"+testSuffix)
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("no file in %s has a name that ends with %s", dir, testSuffix)
	}
	for i := range names {
		names[i] = filepath.Join(dir, names[i])
	}
	return names, err
}

func (o *testOptions) run(out io.Writer, gate *policytest.Gate, files []string) error {
	var results []policytest.Result
	var problems []config.Problem
	for _, file := range files {
		cases, err := gate.Read(file)
		if bad := new(config.Error); errors.As(err, &bad) {
			problems = append(problems, bad.Problems...)
		} else if err != nil {
			return err
		}
		for _, c := range cases {
			results = append(results, gate.Run(c))
		}
	}
	if len(problems) > 0 {
		return config.NewError(problems)
	}
	if o.junit != "" {
		if err := writeJUnit(o.junit, results); err != nil {
			return err
		}
	}
	missed, all := gate.Missed(results)
	return o.report(out, results, missed, all)
}

func writeJUnit(file string, results []policytest.Result) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(policytest.WriteJUnit(f, results), f.Close())
}

func (o *testOptions) report(out io.Writer, results []policytest.Result, missed []config.Problem, all int) error {
	var b strings.Builder
	for _, r := range results {
		if len(r.Wrong) > 0 {
			fmt.Fprintf(&b, "FAIL %s: %s\n%s", r.At, r.Name, r.Text())
		} else if o.verbose {
			fmt.Fprintf(&b, "ok   %s: %s\n", r.At, r.Name)
		}
	}
	percent := 100 * (all - len(missed)) / all
	if o.coverage || percent < o.least {
		for _, m := range missed {
			fmt.Fprintf(&b, "no test reaches %s\n", m)
		}
		fmt.Fprintf(&b, "the tests reach %d of %d rules and policies (%d%%)\n", all-len(missed), all, percent)
	}
	failed := policytest.Failed(results)
	fmt.Fprintf(&b, "%d passed, %d failed\n", len(results)-failed, failed)
	_, err := io.WriteString(out, b.String())
	switch {
	case failed > 0:
		return fmt.Errorf("%d of %d tests failed", failed, len(results))
	case percent < o.least:
		return fmt.Errorf("the tests reach only %d%% of the rules and policies (--min-coverage)", percent)
	default:
		return err
	}
}
