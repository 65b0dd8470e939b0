import boto3
from hostler_handler import handler


@handler
def handle(body: dict):
    s3 = boto3.client("s3", region_name="eu-west-1", endpoint_url=body["url"], aws_access_key_id="a", aws_secret_access_key="b")
    answer = s3.put_object(Bucket="invoices", Key="o-1", Body=b"5 cents")
    print("answer", answer["ResponseMetadata"]["HTTPStatusCode"], answer["ETag"])
