package sink

import "errors"

// A SettingError says what is wrong with one setting of a destination, without showing a
// secret. Key is its place in the rules, "from", "secrets/1" or "headers/X-Team".
type SettingError struct {
	Key string
	Err error
}

func (e *SettingError) Error() string { return e.Err.Error() }

func (e *SettingError) Unwrap() error { return e.Err }

// A settingErrors collects what is wrong, so that all of it is told at once.
type settingErrors struct{ list []error }

func (s *settingErrors) add(key string, err error) {
	if err != nil {
		s.list = append(s.list, &SettingError{key, err})
	}
}

func (s *settingErrors) say(key, text string) { s.add(key, errors.New(text)) }

func (s *settingErrors) err() error { return errors.Join(s.list...) }
