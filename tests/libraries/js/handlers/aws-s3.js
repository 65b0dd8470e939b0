import { GetObjectCommand, PutObjectCommand, S3Client } from "@aws-sdk/client-s3";

export default async (url) => {
  const credentials = { accessKeyId: "id", secretAccessKey: "secret" };
  const s3 = new S3Client({ region: "eu-central-1", endpoint: url, forcePathStyle: true, credentials, maxAttempts: 1 });
  await s3.send(new PutObjectCommand({ Bucket: "bucket", Key: "key", Body: "the text" }));
  const { Body } = await s3.send(new GetObjectCommand({ Bucket: "bucket", Key: "key" }));
  return Body.transformToString();
};
