-- Which object store has the records of this cluster: the store has an object of this name. No row: PostgreSQL itself.
CREATE TABLE object_store (
    is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one),
    id uuid NOT NULL
);
