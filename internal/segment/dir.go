package segment

import "errors"

// OpenDir makes a [Store] of a directory, which it creates.
func OpenDir(path string) (Store, error) { return nil, errors.ErrUnsupported }

// validKey reports whether key may name an object.
func validKey(key string) bool { return key != "" }
