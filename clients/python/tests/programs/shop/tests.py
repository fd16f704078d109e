"""Tests of the project, which Django's own runner runs in a test database that `migrate` has made."""

from unittest import mock

from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase, override_settings

from shop import tasks
from taskq_pg.django.apps import check_extension
from taskq_pg.django.models import Task
from taskq_pg.django.testing import perform

try:
    from django.tasks import TaskResultStatus
except ImportError:
    from django_tasks import TaskResultStatus

BACKEND = "taskq_pg.django.backend.TaskqBackend"


class Performed(TestCase):
    def test_in_the_transaction_of_the_test(self):
        added, sent = tasks.add.enqueue(1, b=2), tasks.send.enqueue("ann")
        results = {result.id: result for result in perform()}
        self.assertEqual(results.keys(), {added.id, sent.id})
        self.assertEqual(results[added.id].return_value, 3)
        self.assertEqual(results[sent.id].return_value, {"to": "ann"})
        self.assertTrue(connection.in_atomic_block)
        self.assertEqual(perform(), [])

    def test_what_is_raised(self):
        tasks.fail.using(max_tries=1).enqueue()
        with self.assertRaisesMessage(ValueError, "never"):
            perform()
        tasks.fail.using(max_tries=1).enqueue()
        [result] = perform(raises=False)
        self.assertEqual(result.status, TaskResultStatus.FAILED)

    def test_a_statement_that_fails(self):
        tasks.breaks.using(max_tries=1).enqueue()
        added = tasks.add.enqueue(1)
        results = {result.id: result for result in perform(raises=False)}
        self.assertEqual(results[added.id].status, TaskResultStatus.SUCCESSFUL)
        self.assertEqual(len(results), 2)
        self.assertEqual(User.objects.count(), 0)

    def test_a_block_that_is_to_be_the_outermost(self):
        tasks.outermost.enqueue()
        self.assertEqual([result.return_value for result in perform()], ["done"])

    def test_one_queue(self):
        tasks.add.enqueue(1)
        sent = tasks.send.enqueue("ann")
        self.assertEqual([result.id for result in perform(queues=["mail"])], [sent.id])

    def test_keys_of_one_task(self):
        nightly = tasks.add.using(max_tries=7, unique_by="total", group_id="nightly", priority=3)
        one, two = nightly.enqueue(1), nightly.using(priority=5).enqueue(2)
        self.assertEqual(one.id, two.id)
        task = Task.objects.get(id=one.id)
        self.assertEqual((task.group_id, task.priority, task.state), ("nightly", 3, "ready"))
        with connection.cursor() as cursor:
            cursor.execute("SELECT max_tries FROM taskq.tasks WHERE id = %s", [one.id])
            self.assertEqual(cursor.fetchone(), (7,))
        with self.assertRaisesMessage(TypeError, "no key of a task: max_trys"):
            tasks.add.using(max_trys=1)


class LeavesNothing(TransactionTestCase):
    def test_once(self):
        self.assertEqual(Task.objects.count(), 0)
        tasks.add.enqueue(1)
        tasks.add.enqueue(2)
        self.assertEqual(len(perform(queues=["default"])), 2)
        tasks.add.enqueue(3)

    test_twice = test_once


class Checks(TestCase):
    def ids(self, **options):
        settings = {"default": {"BACKEND": BACKEND, "OPTIONS": options}}
        with override_settings(TASKS=settings):
            return [message.id for message in run_checks()]

    def test_options(self):
        self.assertEqual(self.ids(lease="5 minutes", insert={"max_tries": 3}, prefix="x."), [])
        self.assertEqual(self.ids(lese=3), ["taskq.E001"])
        self.assertEqual(self.ids(insert={"max_trys": 3}), ["taskq.E002"])
        self.assertEqual(self.ids(lease="5 minuets"), ["taskq.E003"])
        self.assertEqual(self.ids(database="other"), ["taskq.E004"])

    def test_the_extension(self):
        self.assertEqual(run_checks(databases=["default"]), [])
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("DROP EXTENSION taskq")
            self.assertEqual([message.id for message in run_checks(databases=["default"])], ["taskq.W001"])
            self.assertEqual(check_extension(databases=None), [])
            transaction.set_rollback(True)

    def test_a_role_that_may_not_make_it(self):
        import importlib

        migration = importlib.import_module("taskq_pg.django.migrations.0001_initial")
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("DROP EXTENSION taskq; CREATE ROLE shop_without_rights; SET LOCAL ROLE shop_without_rights")
            migration.make_extension(None, mock.Mock(connection=connection))
            cursor.execute("SELECT count(*) FROM pg_extension WHERE extname = 'taskq'")
            self.assertEqual(cursor.fetchone(), (0,))
            transaction.set_rollback(True)


class Admin(TestCase):
    def test_it_is_read_only(self):
        added = tasks.add.enqueue(1)
        self.client.force_login(User.objects.create_superuser("ann"))
        self.assertContains(self.client.get("/admin/taskq/task/"), added.id)
        shown = self.client.get(f"/admin/taskq/task/{added.id}/change/")
        self.assertContains(shown, "django.default")
        self.assertNotContains(shown, 'name="_save"')
        self.assertEqual(self.client.get("/admin/taskq/task/add/").status_code, 403)
        self.assertEqual(self.client.post(f"/admin/taskq/task/{added.id}/delete/").status_code, 403)

    def test_there_is_nothing_to_migrate(self):
        from django.core.management import call_command

        call_command("makemigrations", "--check", "taskq", verbosity=0)
