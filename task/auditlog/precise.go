package auditlog

import "time"

// precise returns t as it is stored: in UTC and in whole microseconds.
func precise(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
