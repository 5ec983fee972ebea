// Package human writes quantities as people read them: "1 hour 30 minutes", "4 MiB".
package human

import (
	"fmt"
	"strings"
	"time"
)

// Duration returns a duration in words, in its two largest units.
func Duration(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d milliseconds", max(0, d.Milliseconds()))
	}
	var parts []string
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		n := d / unit.length
		d %= unit.length
		switch {
		case n == 1:
			parts = append(parts, "1 "+unit.name)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n, unit.name))
		}
	}
	return strings.Join(parts[:min(2, len(parts))], " ")
}

// Size returns a number of bytes in the largest unit in which it is a whole number.
func Size(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	for len(units) > 1 && n > 0 && n%1024 == 0 {
		n, units = n/1024, units[1:]
	}
	return fmt.Sprintf("%d %s", n, units[0])
}
