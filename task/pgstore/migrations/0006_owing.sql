-- The few tasks whose upstream is still to be told that nobody waits for them
-- are found by an index of their own. Of the tasks that are there already some
-- are taken for such that are not, and some cannot be read here: whoever finds
-- them looks.
ALTER TABLE tasks ADD COLUMN owing boolean NOT NULL DEFAULT FALSE;

UPDATE tasks SET owing = TRUE WHERE state IN ('cancelled', 'expired')
    AND (document LIKE '%"cancellation":%' OR document LIKE '%"sealed:1:%');

CREATE INDEX tasks_owing ON tasks (created_at DESC, id) WHERE owing;
