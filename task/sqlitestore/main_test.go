package sqlitestore_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

func TestMain(m *testing.M) {
	for variable, shared := range map[string]bool{crashFile: false, sharedFile: true} {
		if file := os.Getenv(variable); file != "" {
			createUntilKilled(sqlitestore.Options{File: file, Shared: shared})
			os.Exit(1)
		}
	}
	if file := os.Getenv(answersFile); file != "" {
		answerUntilKilled(sqlitestore.Options{File: file})
		os.Exit(1)
	}
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
