package provisioner

import (
	"strconv"
	"strings"
)

// lower reports whether version a is lower than version b. Both are numbers separated by dots.
func lower(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		m, errM := strconv.Atoi(x[i])
		n, errN := strconv.Atoi(y[i])
		if errM != nil || errN != nil {
			return false
		}
		if m != n {
			return m < n
		}
	}
	return len(x) < len(y)
}
