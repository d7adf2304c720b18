package notify

import "fmt"

// Violations reads a rules file and holds it against the schema: each place and keyword.
func Violations(file []byte) (value any, bad []string, err error) {
	d, errs := readYAML(file)
	if len(errs) > 0 {
		return nil, nil, errs[0]
	}
	s, err := compiled()
	if err != nil {
		return nil, nil, err
	}
	for _, v := range s.check(d.value, "") {
		switch v.Key {
		case "propertyNames":
			bad = append(bad, fmt.Sprintf("%s %v", v.Key, v.Got))
		case "additionalProperties":
			bad = append(bad, fmt.Sprintf("%s %s %v", v.At, v.Key, v.Got))
		default:
			bad = append(bad, v.At+" "+v.Key)
		}
	}
	return d.value, bad, nil
}

// ReadSchema says what is wrong with a schema.
func ReadSchema(schema string) error {
	_, err := newShape([]byte(schema))
	return err
}
