package conversation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// GOV-004 NF-001.4: the first reports of a task and its final report are handled at once. Later
// reports, also repeated final ones, are coalesced.
func TestFinalReportIsHandledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReports()
		defer r.close()
		var mu sync.Mutex
		var acted []string
		say := func(word string, final bool) {
			r.take(t.Context(), "tg_1", report{final: final, act: func(context.Context) {
				mu.Lock()
				defer mu.Unlock()
				acted = append(acted, word)
			}})
		}
		want := func(when string, words ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(acted, words) {
				t.Errorf("%s: handled %q; want %q", when, acted, words)
			}
			acted = nil
		}
		for i := range 100 {
			say(fmt.Sprint(i), false)
		}
		want("working", "0", "1", "2", "3", "4")
		for range 100 {
			say("end", true)
		}
		say("late", false)
		want("ended", "end")
		time.Sleep(ReportInterval)
		want("after an interval", "end")
		time.Sleep(ReportInterval)
		synctest.Wait()
		for range reportBurst {
			say("again", false)
		}
		want("a new burst", slices.Repeat([]string{"again"}, reportBurst)...)
	})
}
